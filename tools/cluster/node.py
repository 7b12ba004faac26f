"""A node: containerd, a kubelet and kube-proxy, with the settings that let several of them share one machine.

The programs live at the paths they have on any node (/run/containerd, /var/lib/kubelet, /var/log/pods); each node
sees a folder of its own there. Some paths are fixed in the kubelet's code, so this is also the only way that works.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.cluster import build, network, pki, policy, registry, units
from tools.cluster.cgroups import Branch
from tools.cluster.state import CONTROL, ROOT, Cluster
from tools.cluster.units import Mount, Part, Unit

SOCKET = "/run/containerd/containerd.sock"
# The API server calls a node lost after this long: 50 s by default, too long to wait for in a test.
LOST_AFTER_S = 12

# The kubelet sets these for the whole machine unless it finds them as it wants them. It finds them so, in files of its own.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def start(cluster: Cluster, node: str) -> None:
    """Start a node, new or stopped; it joins the cluster by itself."""
    control = units.running(cluster, CONTROL)
    # What a stopped node left in its cgroups would be mistaken for running pods.
    units.power_off(cluster, node)
    units.start(
        cluster, describe(cluster, node), lambda pid: network.connect_node(cluster, control, node, pid)
    )


def enter(cluster: Cluster, node: str) -> list[str]:
    """The words that run a program on the node, as if one had logged in there."""
    pid = str(units.running(cluster, node))
    return ["nsenter", "--target", pid, "--mount", "--net", "--uts", "--ipc", "--pid"]


def describe(cluster: Cluster, node: str) -> Unit:
    folder = cluster.unit_folder(node)
    settings = folder / "settings"
    for path in (
        folder / "disk" / "containerd",
        folder / "disk" / "kubelet",
        folder / "disk" / "cni",
        settings,
    ):
        path.mkdir(parents=True, exist_ok=True)
    (folder / "varlib").mkdir(exist_ok=True)
    (folder / "varlog").mkdir(exist_ok=True)
    _write_settings(cluster, node, settings)
    return Unit(
        node, _parts(cluster, node, settings), _mounts(folder), {"/proc/sys/net/ipv4/ip_forward": "1"}
    )


def _write_settings(cluster: Cluster, node: str, settings: Path) -> None:
    address = cluster.node_address(node)
    own = pki.issue(cluster, node, f"/O=system:nodes/CN=system:node:{node}", f"DNS:{node},IP:{address}")
    pki.write_kubeconfig(cluster, own, settings / "kubelet.kubeconfig")
    (settings / "containerd.toml").write_text(_containerd(settings))
    registry.write_hosts(cluster, settings / "registries")
    (settings / "cni").mkdir(exist_ok=True)
    (settings / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(node), indent=1))
    (settings / "resolv.conf").touch()
    (settings / "kubelet.json").write_text(json.dumps(_kubelet(cluster, node, settings, own), indent=1))
    (settings / "kube-proxy.json").write_text(json.dumps(_kube_proxy(cluster, node), indent=1))
    for name, value in _KERNEL_SETTINGS.items():
        (settings / name.replace("/", ".")).write_text(value + "\n")


def _containerd(settings: Path) -> str:
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{build.PAUSE_IMAGE}"
  # Root need not have CAP_SYS_RESOURCE (in a container it has not), without which no score can be lowered.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{settings}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{settings}/registries"
"""


def _cni(node: str) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": network.pod_subnet(node)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/networks",
    }
    # Point to point, not a bridge: every packet between two pods of a node passes its rules, as Services need it.
    # A bridge does that only with br_netfilter, which would change all bridges of the host.
    cable = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [cable, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet(cluster: Cluster, node: str, settings: Path, own: pki.Identity) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.authority(cluster).certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(own.certificate),
        "tlsPrivateKeyFile": str(own.key),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "clusterDomain": "cluster.local",
        "clusterDNS": [network.DNS_SERVICE],
        # Empty: no pod may depend on the name server of the developer's machine.
        "resolvConf": str(settings / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": Branch.of(cluster.name).path(node),
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": 250,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        "syncFrequency": "10s",
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        # The disk is the host's: a full one is the developer's to clean, not a reason to evict pods or images.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _kube_proxy(cluster: Cluster, node: str) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.folder / "kube-proxy.kubeconfig")},
        "mode": "iptables",
        "clusterCIDR": network.POD_NETWORK,
        "hostnameOverride": node,
        "oomScoreAdj": 0,
        # The size of the connection table belongs to the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "iptables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
    }


def _parts(cluster: Cluster, node: str, settings: Path) -> list[Part]:
    def imported(name: str) -> Part:
        argv = ["ctr", "-a", SOCKET, "-n", "k8s.io", "images", "import", str(build.image(name))]
        return Part(f"import-{name}", argv, needs=[SOCKET], once=True)

    # Pods keep their addresses among themselves and borrow the node's towards everything else.
    to_elsewhere = ["-s", network.POD_NETWORK, "!", "-d", network.POD_NETWORK, "-j", "MASQUERADE"]
    ready = str(cluster.ready_file)
    kubelet = [
        str(build.program("kubelet")),
        f"--config={settings}/kubelet.json",
        f"--kubeconfig={settings}/kubelet.kubeconfig",
        f"--hostname-override={node}",
        f"--node-ip={cluster.node_address(node)}",
        "--v=2",
    ]
    return [
        Part("masquerade", ["iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *to_elsewhere], once=True),
        Part("containerd", ["containerd", "-c", f"{settings}/containerd.toml"]),
        imported("pause"),
        Part("kubelet", kubelet, needs=[ready, SOCKET], after=["import-pause"]),
        Part(
            "kube-proxy",
            [str(build.program("kube-proxy")), f"--config={settings}/kube-proxy.json"],
            needs=[ready],
            after=["masquerade"],
        ),
        imported("coredns"),
        policy.part(cluster, node),
    ]


def _mounts(folder: Path) -> list[Mount]:
    varlib = folder / "varlib"
    disk = folder / "disk"
    kinds = ("containerd", "kubelet", "cni")
    return [
        Mount("tmpfs", "/run", folders=("containerd", "netns", "lock")),
        Mount("tmpfs", str(varlib), folders=(*kinds, ROOT.name)),
        *(Mount("bind", str(varlib / kind), str(disk / kind)) for kind in kinds),
        Mount("bind", str(varlib / ROOT.name), str(ROOT)),
        Mount("bind", "/var/lib", str(varlib)),
        Mount("bind", "/var/log", str(folder / "varlog")),
        *(
            Mount("bind", f"/proc/sys/{name}", str(folder / "settings" / name.replace("/", ".")))
            for name in _KERNEL_SETTINGS
        ),
    ]
