"""Has Prometheus scrape a daemon, and promtool check its metrics and the alert rules: python3 tests/metrics.py, from the
repository's folder. Both are what Debian's package has, taken apart into target/prometheus. FLASHLOOM_BIN names the
program."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

program = os.path.abspath(os.environ.get("FLASHLOOM_BIN", "target/debug/flashloom"))
here = pathlib.Path("target/prometheus").absolute()
rules = pathlib.Path("packaging/prometheus").absolute()
prometheus, promtool = here / "usr/bin/prometheus", here / "usr/bin/promtool"

if not promtool.exists():
    here.mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "download", "-qq", "prometheus"]
    if subprocess.run(download, cwd=here, capture_output=True).returncode:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(download, cwd=here, check=True)
    for package in here.glob("prometheus_*.deb"):
        subprocess.run(["dpkg", "-x", package, here], check=True)
        package.unlink()

subprocess.run([promtool, "check", "rules", "flashloom.rules.yml"], cwd=rules, check=True)
subprocess.run([promtool, "test", "rules", "flashloom.rules.test.yml"], cwd=rules, check=True)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read()


def query(expression):
    answer = json.loads(get(asked, "/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    return [float(sample["value"][1]) for sample in answer["data"]["result"]]


def until(what, condition):
    deadline = time.monotonic() + 120
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


with tempfile.TemporaryDirectory() as work:
    listen, scraped, asked = free_port(), free_port(), free_port()
    config = pathlib.Path(work, "flashloom.toml")
    config.write_text(
        f'[metrics]\nlisten = "127.0.0.1:{scraped}"\n[[listener]]\naddress = "127.0.0.1:{listen}"\n'
        '[[subsystem]]\nnqn = "nqn.2026-11.io.flashloom:m"\nallow-any-host = true\n'
        '[[subsystem.namespace]]\nbackend = "memory:16MiB"\n'
    )
    of_prometheus = pathlib.Path(work, "prometheus.yml")
    of_prometheus.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules}/flashloom.rules.yml]\n"
        f'scrape_configs:\n  - job_name: flashloom\n    static_configs: [{{targets: ["127.0.0.1:{scraped}"]}}]\n'
    )
    subprocess.run([promtool, "check", "config", of_prometheus], check=True)
    state = ["--state-dir", f"{work}/state"]
    daemon = subprocess.Popen([program, *state, "serve", "--config", config], stdout=subprocess.PIPE, text=True)
    server = None
    try:
        assert any(line.startswith("nvme connect") for line in daemon.stdout), "it did not start"
        pool = [program, *state, "pool", "create", "fast"]
        pool += [part for n in range(4) for part in ("--drive", f"{work}/d{n},size=300MiB")]
        subprocess.run(pool, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([promtool, "check", "metrics"], input=get(scraped, "/metrics"), check=True)
        server = subprocess.Popen(
            [prometheus, f"--config.file={of_prometheus}", f"--storage.tsdb.path={work}/data"]
            + [f"--web.listen-address=127.0.0.1:{asked}", "--log.level=error"]
        )
        until("it is scraped", lambda: query('up{job="flashloom"}') == [1])
        until("the pool is seen", lambda: query('flashloom_drive_online{pool="fast"}') == [1] * 4)
        assert query('flashloom_pool_health{pool="fast"}') == [0], query("flashloom_pool_health")
        known = json.loads(get(asked, "/api/v1/rules"))["data"]["groups"]
        assert [rule for group in known for rule in group["rules"] if rule["health"] == "err"] == []
        assert query("ALERTS") == [], query("ALERTS")
        daemon.terminate()
        daemon.wait()
        until("its end is seen", lambda: query('ALERTS{alertname="FlashloomDown"}') == [1])
    finally:
        for process in filter(None, [server, daemon]):
            process.kill()
            process.wait()
print("Prometheus scraped a daemon, and told of its end")
