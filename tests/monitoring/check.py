#!/usr/bin/env python3
"""The dashboard on a real Prometheus: tests/monitoring/check.py DARTER

Has Debian's prometheus scrape a DARTER under load each second, with our prometheus.yml but for the address, and asks it
for every panel of our Grafana dashboard and every alarm. Exits non-zero when a query fails, or a panel is empty. Panels of a
group are looked at where an etcd is installed.
"""
import json, pathlib, re, shutil, socket, subprocess, sys, tempfile, threading, time, urllib.parse, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port

HERE = pathlib.Path(__file__).resolve().parents[2] / "tools/local/monitoring"
ALERTS = HERE / "alerts.yml"
DASHBOARD = HERE / "grafana/provisioning/dashboards/dashboard.json"


def await_port(port, what):
    for _ in range(1200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(what + " does not listen")


def resp(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(str(w)), str(w).encode()) for w in words)


def load(port, done):
    link = socket.create_connection(("127.0.0.1", port))
    beat = 0
    while not done.wait(0.02):
        beat += 1
        link.sendall(b"".join(resp(*words) for words in [
            ("SET", f"k{beat % 500}", "v" * 100, "PX", 2000), ("GET", f"k{beat % 700}"), ("INCR", "n"),
            ("LPUSH", "n", "x"), ("HSET", "h", f"f{beat % 50}", beat), ("NOSUCH",)]))
        link.recv(1 << 16)
    link.close()


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def ask(prometheus, query):
    answer = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})))
    return answer["data"]["result"]


class Group:
    """Two servers of a group, and the etcd that says who leads."""

    def __init__(self, program, folder):
        store, peers = free_port(), free_port()
        url, peer_url = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [subprocess.Popen(
            ["etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
             "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}"], **quiet)]
        await_port(store, "etcd")
        self.ports = []
        for _ in range(2):
            port = free_port()
            self.processes.append(subprocess.Popen(
                [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dbfilename", "",
                 "--ha_store", f"etcd://127.0.0.1:{store}", "--min_replicas_to_ack", "1"], **quiet))
            await_port(port, "a member")
            self.ports.append(port)
        # The first one leads: the other comes when the store has it.
        end = time.time() + 30
        while self.ask("SET", "a", "1") != b"+OK\r\n" and time.time() < end:
            time.sleep(0.1)

    def ask(self, *words):
        for port in self.ports:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
                link.sendall(resp(*words))
                answer = link.recv(1 << 16)
                if not answer.startswith(b"-"):
                    return answer
        return b""

    def work(self, done):
        while not done.wait(0.05):
            try:
                self.ask("INCR", "n")
            except OSError:
                pass

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


def check_panels(prometheus, instance, members):
    dashboard = json.loads(DASHBOARD.read_text())
    wrong, asked = [], 0
    for variable in dashboard["templating"]["list"]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
        if {row["metric"].get(label) for row in ask(prometheus, metric)} != {instance, *members}:
            wrong.append(f"variable {variable['name']}")
    row = None
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        if row == "Group" and not members:
            continue
        for target in panel.get("targets", []):
            shown = "|".join(members) if row == "Group" else instance
            query = target["expr"].replace("$__rate_interval", "8s").replace("$instance", shown)
            asked += 1
            try:
                rows = ask(prometheus, query)
            except OSError as error:
                wrong.append(f"{panel['title']}: {query}: {error}")
                continue
            if not any(row["value"][1] != "NaN" for row in rows):
                wrong.append(f"{panel['title']}: no data: {query}")
    return wrong, asked


def main():
    for program in ("prometheus", "promtool"):
        if not shutil.which(program):
            sys.exit(f"no {program}")
    port, prometheus = free_port(), free_port()
    instance = f"127.0.0.1:{port}"
    done = threading.Event()
    worker = threading.Thread(target=load, args=(port, done))
    with tempfile.TemporaryDirectory() as folder:
        config = (HERE / "prometheus.yml").read_text()
        group = Group(sys.argv[1], folder) if shutil.which("etcd") else None
        if group is None:
            print("skipped  no etcd: panels of a group are not looked at")
        members = [f"127.0.0.1:{member}" for member in group.ports] if group else []
        config = config.replace("host.docker.internal:6379", '", "'.join([instance, *members])).replace("scrape_interval: 5s", "scrape_interval: 1s")
        (pathlib.Path(folder) / "prometheus.yml").write_text(config)
        server = subprocess.Popen([sys.argv[1], "--bind", "127.0.0.1", "--port", str(port), "--save", ""],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_port(port, "the server")
        replica = subprocess.Popen([sys.argv[1], "--bind", "127.0.0.1", "--port", str(free_port()), "--save", "",
                                    "--dbfilename", "", "--replicaof", f"127.0.0.1:{port}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.copy(ALERTS, folder)
        workers = [worker] + ([threading.Thread(target=group.work, args=(done,))] if group else [])
        for one in workers:
            one.start()
        scraper = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                    f"--web.listen-address=127.0.0.1:{prometheus}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_port(prometheus, "prometheus")
            page = get(f"http://{instance}/metrics")
            linted = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
            # 3 means that a name is not to its taste; Dragonfly's names are not ours to change.
            wrong = [] if linted.returncode in (0, 3) else [f"promtool: {linted.stderr}"]
            wrong += [f"promtool: {line}" for line in linted.stderr.splitlines() if line.startswith(("darter_", "process_"))]
            end = time.time() + 60
            while True:
                time.sleep(2)
                found, asked = check_panels(prometheus, instance, members)
                if not found or time.time() > end:
                    break
            wrong += found
            rules = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/rules"))["data"]["groups"]
            rules = [rule for part in rules for rule in part["rules"]]
            wrong += [f"alarm {rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] == "err"]
            # Nothing is wrong here, but a replica that is new may lag for a moment.
            wrong += [f"alarm {rule['name']} is raised" for rule in rules if rule["state"] == "firing"]
            print(f"{len(rules)} alarms")
            wrong += [] if rules else ["Prometheus has no alarms"]
            took = ask(prometheus, "max_over_time(scrape_duration_seconds[20s])")
            print(f"slowest scrape: {float(took[0]['value'][1]) * 1000:.1f} ms, {page.count(chr(10))} lines")
        finally:
            done.set()
            for one in workers:
                one.join()
            for process in (scraper, replica, server):
                process.terminate()
                process.wait()
            if group:
                group.close()
    print("".join(f"FAILED  {line}\n" for line in wrong) + f"monitoring: {asked} queries, {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
