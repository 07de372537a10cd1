"""Uses a daemon by a client that a generator made of the description of its API: client.py PROGRAM FOLDER."""

import socket
import subprocess
import sys
import tempfile

import httpx

program, folder = sys.argv[1:]
sys.path.insert(0, folder)

from flashloom_client import Client
from flashloom_client.api.namespace import list_namespaces
from flashloom_client.api.node import health, status
from flashloom_client.api.pool import create_pool, delete_pool, list_pools, show_pool
from flashloom_client.api.volume import create_volume, list_volumes
from flashloom_client.models import NewPool, NewVolume, Pool, PoolPlan, Problem, Volume

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]

with tempfile.TemporaryDirectory() as state:
    serve = [program, "--state-dir", state, "serve", "memory:16MiB", "--listen", f"127.0.0.1:{port}", "--discovery", "off"]
    daemon = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert any(line.startswith("nvme connect") for line in daemon.stdout), "it did not start"
        transport = httpx.HTTPTransport(uds=f"{state}/api.sock")
        client = Client(base_url="http://flashloom", httpx_args={"transport": transport})

        assert len(list_namespaces.sync("nqn.2026-11.io.flashloom:default", client=client)) == 1
        assert list_pools.sync(client=client) == []
        drives = [f"{state}/d{n},size=300MiB" for n in range(4)]
        plan = create_pool.sync(client=client, body=NewPool(name="p", drives=drives, dry_run=True))
        assert isinstance(plan, PoolPlan) and plan.parity == 2, plan
        pool = create_pool.sync(client=client, body=NewPool(name="p", drives=drives))
        assert isinstance(pool, Pool) and pool.status.capacity == plan.breakdown.usable, pool
        volume = create_volume.sync("p", client=client, body=NewVolume(name="v", size=1 << 30))
        assert isinstance(volume, Volume) and volume.size == 1 << 30, volume
        volumes = list_volumes.sync("p", client=client)
        assert [volume.name for volume in volumes] == ["p/v"], volumes
        refused = show_pool.sync("none", client=client)
        assert isinstance(refused, Problem) and refused.kind == "not-found", refused
        refused = delete_pool.sync("p", client=client)
        assert isinstance(refused, Problem) and refused.kind == "conflict", refused
        assert delete_pool.sync_detailed("p", client=client, force=True).status_code == 204
        assert list_pools.sync(client=client) == []
        assert status.sync(client=client).namespaces == 1
        assert health.sync(client=client).health
    finally:
        daemon.terminate()
        daemon.wait()
