#!/usr/bin/env python3
"""The dashboard on a real Prometheus: tests/monitoring/check.py DARTER

Has Debian's prometheus scrape a DARTER under load each second, with our prometheus.yml but for the address, and asks it
for every panel of our Grafana dashboard and every alarm. Exits non-zero when a query fails, or a panel is empty. Panels of a
group are looked at where an etcd is installed.
"""
import json, pathlib, re, shutil, socket, subprocess, sys, threading, time, urllib.parse, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "walks"))
from walk import PATIENCE, ROOT, Server, check, etcd, folder, free_port, listens, over, resp, start, wait

HERE = ROOT / "tools/local/monitoring"
ALERTS = HERE / "alerts.yml"
DASHBOARD = HERE / "grafana/provisioning/dashboards/dashboard.json"


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def ask(prometheus, query):
    answer = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})))
    return answer["data"]["result"]


class Work(threading.Thread):
    """Commands of every kind until `stop`: reads, writes, misses, keys that die, and errors."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.done, self.fault = server, threading.Event(), None
        self.start()

    def run(self):
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as link:
                beat = 0
                while not self.done.wait(0.02):
                    beat += 1
                    link.sendall(b"".join(resp(*words) for words in [
                        ("SET", f"k{beat % 500}", "v" * 100, "PX", 2000), ("GET", f"k{beat % 700}"), ("INCR", "n"),
                        ("LPUSH", "n", "x"), ("HSET", "h", f"f{beat % 50}", beat), ("NOSUCH",)]))
                    link.recv(1 << 16)
        except OSError as fault:
            self.fault = fault

    def stop(self):
        self.done.set()
        self.join(PATIENCE)
        check(not self.is_alive() and not self.fault, "the work was answered to its end", f"{self.fault or 'it waits for a reply'}")


class GroupWork(Work):
    """The same at a member: a leader closes connections whose outcome it does not know, so it begins again."""

    def run(self):
        while not self.done.wait(0.1):
            super().run()
            self.fault = None


def group():
    """Two servers of a group of which one leads."""
    flags = ("--save", "", "--dbfilename", "", "--ha_store", etcd(), "--min_replicas_to_ack", "1")
    members = [Server(*flags).ready() for _ in range(2)]
    # The leader takes writes once the other is a member.
    wait(lambda: b"+OK\r\n" in [one.call("SET", "a", "1") for one in members], "a group takes writes",
         lambda: "\n".join(one.said() for one in members))
    return members


def empty_panels(prometheus, instance, members):
    dashboard = json.loads(DASHBOARD.read_text())
    """What is empty or fails, of the dashboard's variables and panels."""
    wrong = []
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
            query = target["expr"].replace("$__rate_interval", "20s").replace("$instance", shown)
            try:
                rows = ask(prometheus, query)
            except OSError as error:
                wrong.append(f"{panel['title']}: {query}: {error}")
                continue
            if not any(row["value"][1] != "NaN" for row in rows):
                wrong.append(f"{panel['title']}: no data: {query}")
    return wrong


def bad_alarms(prometheus):
    """Rules that cannot be asked, or are raised."""
    groups = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/rules"))["data"]["groups"]
    rules = [rule for part in groups for rule in part["rules"]]
    bad = [rule for rule in rules if rule["health"] != "ok" or rule["state"] == "firing"]
    return [f"{rule['name']}: {rule['health']}, {rule['state']} {rule.get('lastError', '')}" for rule in bad] if rules else ["there are none"]


def main():
    for program in ("prometheus", "promtool"):
        if not shutil.which(program):
            sys.exit(f"no {program}")
    place, prometheus = folder(), free_port()
    server = Server("--save", "").ready()
    instance = f"127.0.0.1:{server.port}"
    Server("--save", "", "--dbfilename", "", "--replicaof", instance).ready()
    members = group() if shutil.which("etcd") else []
    if not members:
        print("skipped  no etcd: panels of a group are not looked at")
    work = [Work(server), *map(GroupWork, members)]
    members = [f"127.0.0.1:{member.port}" for member in members]
    config = (HERE / "prometheus.yml").read_text()
    config = config.replace("host.docker.internal:6379", '", "'.join([instance, *members])).replace("scrape_interval: 5s", "scrape_interval: 1s")
    (place / "prometheus.yml").write_text(config)
    shutil.copy(ALERTS, place)
    start(["prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data",
           f"--web.listen-address=127.0.0.1:{prometheus}"], stdout=subprocess.DEVNULL, stderr=(place / "log").open("w"))
    if not wait(lambda: listens(prometheus), "prometheus listens", (place / "log").read_text):
        over()
    page = get(f"http://{instance}/metrics")
    linted = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
    # 3 means that a name is not to its taste; Dragonfly's names are not ours to change.
    wrong = [line for line in linted.stderr.splitlines() if line.startswith(("darter_", "process_"))]
    check(linted.returncode in (0, 3) and not wrong, "promtool reads /metrics", linted.stderr)
    empty, bad = (lambda: empty_panels(prometheus, instance, members)), (lambda: bad_alarms(prometheus))
    wait(lambda: not empty(), "every panel and variable has data", lambda: "\n".join(empty()), pause=1)
    # A replica that is new may lag for a moment.
    wait(lambda: not bad(), "every alarm can be asked, and none is raised", lambda: "\n".join(bad()), pause=1)
    took = ask(prometheus, "max_over_time(scrape_duration_seconds[20s])")
    print(f"slowest scrape: {float(took[0]['value'][1]) * 1000:.1f} ms, {page.count(chr(10))} lines")
    for one in work:
        one.stop()
    over()


if __name__ == "__main__":
    main()
