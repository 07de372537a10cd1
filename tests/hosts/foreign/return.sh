# It is back.
nvmet=/sys/kernel/config/nvmet
nqn=nqn.2026-11.io.flashloom:foreign
ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/$nqn"
