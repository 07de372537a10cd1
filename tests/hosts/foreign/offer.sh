# The kernel's own target offers a drive.
nvmet=/sys/kernel/config/nvmet
nqn=nqn.2026-11.io.flashloom:foreign
mkdir "$nvmet/subsystems/$nqn"
echo 1 >"$nvmet/subsystems/$nqn/attr_allow_any_host"
mkdir "$nvmet/subsystems/$nqn/namespaces/1"
echo /dev/vdc >"$nvmet/subsystems/$nqn/namespaces/1/device_path"
echo 1 >"$nvmet/subsystems/$nqn/namespaces/1/enable"
mkdir "$nvmet/ports/1"
echo tcp >"$nvmet/ports/1/addr_trtype"
echo ipv4 >"$nvmet/ports/1/addr_adrfam"
echo 10.0.2.15 >"$nvmet/ports/1/addr_traddr"
echo 4420 >"$nvmet/ports/1/addr_trsvcid"
ln -s "$nvmet/subsystems/$nqn" "$nvmet/ports/1/subsystems/$nqn"
