# Header digest, data digest, both: the load is the same and nothing is noticed.
serve memory:128MiB
for digests in "--hdr-digest" "--data-digest" "--hdr-digest --data-digest"; do
    # shellcheck disable=SC2086
    connect $digests
    verify_load --size=8m --io_size=8m
    disconnect
done
no_io_error
