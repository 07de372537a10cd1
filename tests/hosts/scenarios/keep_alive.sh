# Silence of the host is bridged by keep alive; silence of the target is noticed, and when it
# speaks again the host reconnects without an I/O error.
serve memory:64MiB
connect --keep-alive-tmo=3 --reconnect-delay=1 --ctrl-loss-tmo=600
stays_live 10
background_load
load_moves
call signal STOP
wait_for 120 not_live
call signal CONT
wait_for 120 live
load_moves
load_done
no_io_error
