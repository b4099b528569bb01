#!/usr/bin/env python3
"""Packaging: tests/packaging/check.py [DARTER]

Reads the compose files and the Helm chart (by `helm lint` and `helm template` if helm is installed), compares them with the
image and the settings, and with DARTER runs the server as the image does: as user 65532, on a folder of its own and on one
that belongs to root. If Go, kubeconform and jsonschema are installed, what the chart renders is checked against the API of
Kubernetes, and the compose files against the specification; Go's proxy has both. Exits non-zero if something is wrong.

    go install helm.sh/helm/v3/cmd/helm@latest github.com/yannh/kubeconform/cmd/kubeconform@latest; pip install jsonschema
"""
import json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "walks"))
from walk import PATIENCE, ROOT, check, free_port, over, resp, start, wait

CHART = ROOT / "packaging/helm/darter"
KUBERNETES = "k8s.io/kubernetes@v1.31.0"
KINDS = {"PodDisruptionBudget", "Secret", "Service", "ServiceAccount", "StatefulSet"}
COMPOSE = "github.com/compose-spec/compose-go/v2@v2.4.1"


def settings():
    """Names of docs/flags.md, with underscores."""
    text = (ROOT / "docs/flags.md").read_text()
    cells = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", text, re.M)
    return {name.replace("-", "_") for cell in cells for name in re.findall(r"`([^`]+)`", cell)} | {"PASSWORD"}


def names_are_known(text, what):
    unknown = [name for name in re.findall(r"DFLY_(\w+)", text) if name not in settings()]
    check(not unknown, f"settings of {what} exist {unknown or ''}")


def yaml_files():
    try:
        import yaml
    except ImportError:
        print("skipped  PyYAML is not installed: YAML is not parsed")
        return
    compose = {}
    for name in ("darter.yml", "monitored.yml", "prometheus.yml"):
        compose[name] = yaml.safe_load((ROOT / "packaging/compose" / name).read_text())
    darter = compose["darter.yml"]["services"]["darter"]
    check(darter["volumes"] == ["darter:/data"] and "darter" in compose["darter.yml"]["volumes"], "compose keeps /data on a volume")
    check(set(compose["monitored.yml"]["services"]) == {"prometheus", "grafana"}, "compose with Prometheus and Grafana")
    for volume in compose["monitored.yml"]["services"]["grafana"]["volumes"][:1]:
        check((ROOT / "packaging/compose" / volume.split(":")[0]).exists(), "Grafana's dashboard is there")
    names_are_known((ROOT / "packaging/compose/darter.yml").read_text(), "the compose file")
    chart, values = (yaml.safe_load((CHART / name).read_text()) for name in ("Chart.yaml", "values.yaml"))
    check(chart["apiVersion"] == "v2" and chart["name"] == "darter", "the chart has a name")
    unknown = [name for name in values["settings"] if name.replace("-", "_") not in settings()]
    check(not unknown, f"settings of the chart exist {unknown or ''}")
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = {match.split(".")[0] for match in re.findall(r"\.Values\.([\w.]+)", text)}
    check(used == set(values), f"every value is used, and no other {used ^ set(values) or ''}")


def module(name):
    """The folder of a Go module, from Go's proxy; nothing without Go, or without the proxy."""
    if not shutil.which("go"):
        return None
    with tempfile.TemporaryDirectory() as place:
        got = subprocess.run(["go", "mod", "download", "-json", name], capture_output=True, text=True, cwd=place)
    return pathlib.Path(json.loads(got.stdout)["Dir"]) if got.returncode == 0 else None


def strict(node):
    """A schema that refuses fields it does not know, and takes numbers where Kubernetes does."""
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    made = {name: strict(each) for name, each in node.items()}
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node:
        made["additionalProperties"] = False
    return made


def conforms(rendered):
    """The rendered charts by name, against the API of Kubernetes."""
    found = module(KUBERNETES) if shutil.which("kubeconform") else None
    if not found:
        print("skipped  kubeconform or Go are not installed: the chart is not compared with the API of Kubernetes")
        return
    definitions = strict(json.loads((found / "api/openapi-spec/swagger.json").read_text())["definitions"])
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    with tempfile.TemporaryDirectory() as place:
        for name, body in definitions.items():
            for kind in body.get("x-kubernetes-group-version-kind", []):
                group = kind["group"].split(".")[0]
                file = "-".join(part for part in (kind["kind"].lower(), group, kind["version"]) if part) + ".json"
                if kind["kind"] in KINDS:
                    schema = {"$ref": f"#/definitions/{name}", "definitions": definitions}
                    pathlib.Path(place, file).write_text(json.dumps(schema))
        for name, text in rendered.items():
            words = ["kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor", "-schema-location",
                     place + "/{{.ResourceKind}}{{.KindSuffix}}.json", "-"]
            out = subprocess.run(words, input=text, capture_output=True, text=True)
            what = f"kubeconform, {name}: {out.stdout.strip().splitlines()[-1] if out.stdout else out.stderr}"
            check(out.returncode == 0, what if out.returncode == 0 else what + "\n" + out.stdout)
            wrong = text.replace("replicas:", "replicaz:", 1)
            out = subprocess.run(words, input=wrong, capture_output=True, text=True)
            check(out.returncode != 0, f"kubeconform refuses a field that is not there, {name}")


def compose_conforms():
    try:
        import jsonschema, yaml
    except ImportError:
        print("skipped  jsonschema is not installed: compose files are not compared with their specification")
        return
    found = module(COMPOSE)
    if not found:
        print("skipped  Go is not installed: compose files are not compared with their specification")
        return
    schema = json.loads((found / "schema/compose-spec.json").read_text())
    for name in ("darter.yml", "monitored.yml"):
        text = yaml.safe_load((ROOT / "packaging/compose" / name).read_text())
        wrong = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(text)]
        check(not wrong, f"compose specification, {name} {wrong or ''}")


def helm():
    if not shutil.which("helm"):
        print("skipped  helm is not installed: templates are not rendered")
        return
    import yaml

    def run(*words):
        return subprocess.run(["helm", *words], capture_output=True, text=True)

    linted = run("lint", "--strict", str(CHART))
    check(linted.returncode == 0, "helm lint" + ("" if linted.returncode == 0 else "\n" + linted.stdout + linted.stderr))
    cases = {
        "defaults": [],
        "everything": ["--set", "auth.password=secret,memcached.port=11211,serviceMonitor.enabled=true,persistence.storageClass=fast,"
                       "podLabels.a=b,podAnnotations.c=d,service.annotations.e=f,serviceMonitor.labels.g=h,nodeSelector.i=j,settings.port=7000,settings.maxmemory=4294967296"],
        "bare": ["--set", "persistence.enabled=false,podDisruptionBudget.enabled=false,serviceAccount.create=false,auth.protected=false"],
        "own secret": ["--set", "auth.existingSecret=mine"],
    }
    rendered = {}
    for name, words in cases.items():
        made = run("template", "test", str(CHART), "--kube-version", "1.31.0", *words)
        if made.returncode:
            check(False, f"helm template, {name}\n" + made.stderr)
            continue
        rendered[name] = made.stdout
        parts = [part for part in yaml.safe_load_all(made.stdout) if part]
        kinds = sorted(part["kind"] for part in parts)
        wanted = {
            "defaults": ["PodDisruptionBudget", "Service", "Service", "ServiceAccount", "StatefulSet"],
            "everything": ["PodDisruptionBudget", "Secret", "Service", "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet"],
            "bare": ["Service", "Service", "StatefulSet"],
            "own secret": ["PodDisruptionBudget", "Service", "Service", "ServiceAccount", "StatefulSet"],
        }[name]
        check(kinds == wanted, f"helm template, {name}: {', '.join(kinds)}")
        names_are_known(made.stdout, f"the chart, {name}")
        pod = next(part for part in parts if part["kind"] == "StatefulSet")["spec"]["template"]["spec"]
        box = pod["containers"][0]
        check(all(type(each["value"]) is str for each in box["env"] if "value" in each), f"the environment is text, {name}")
        if name == "everything":
            check({"name": "DFLY_maxmemory", "value": "4294967296"} in box["env"], "large numbers stay whole")
        check({"startupProbe", "readinessProbe", "livenessProbe"} <= set(box) and pod["securityContext"]["runAsNonRoot"], f"probes, and no root, {name}")


    conforms(rendered)


def image():
    text = (ROOT / "Dockerfile").read_text()
    check("USER nonroot" in text and "HEALTHCHECK" in text and '"--ping"' in text, "the image has a user and a health check")
    check("example.org" not in (ROOT / "crates/darter/Cargo.toml").read_text(), "the package has a maintainer")


def command(port, *words):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as link:
        link.sendall(resp(*words))
        return link.recv(4096)


def as_in_the_image(program):
    """User 65532, the settings from the environment, the health check on the same port, SIGTERM at the end."""
    if os.getuid() != 0:
        print("skipped  not root: the image's user cannot be taken")
        return
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        copy = shutil.copy(program, place)
        for owner in (65532, 0):
            port = free_port()
            folder = pathlib.Path(place, str(owner))
            folder.mkdir(mode=0o755)
            os.chown(folder, owner, owner)
            words = {"DFLY_port": str(port), "DFLY_bind": "127.0.0.1", "PATH": "/usr/bin:/bin"}
            user = dict(user=65532, group=65532, extra_groups=[], cwd=folder, env=words)
            log = pathlib.Path(place, f"log-{owner}")
            server = start([copy], stderr=log.open("w"), **user)
            ping = [copy, "--ping"]
            wait(lambda: server.poll() is not None or subprocess.run(ping, capture_output=True, **user).returncode == 0, "the health check is answered")
            check(server.poll() is None, f"the health check finds the port, folder of {owner}", log.read_text())
            check(command(port, "SET", "a", "b") == b"+OK\r\n", f"it serves, folder of {owner}")
            server.send_signal(signal.SIGTERM)
            wait(lambda: server.poll() is not None, f"SIGTERM ends it, folder of {owner}")
            saved = list(folder.glob("dump*"))
            check(bool(saved) == (owner == 65532), f"a snapshot {'is' if owner else 'cannot be'} written, folder of {owner}", log.read_text())
            again = subprocess.run(ping, capture_output=True, **user)
            check(again.returncode == 1, f"the health check fails when it has ended, folder of {owner}")


def main():
    yaml_files()
    compose_conforms()
    helm()
    image()
    if len(sys.argv) > 1:
        as_in_the_image(sys.argv[1])
    over()


if __name__ == "__main__":
    main()
