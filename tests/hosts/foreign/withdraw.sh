# The kernel's target leaves its port, and drops who is connected.
rm "/sys/kernel/config/nvmet/ports/1/subsystems/nqn.2026-11.io.flashloom:foreign"
