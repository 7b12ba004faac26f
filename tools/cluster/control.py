"""The control plane: etcd, the API server, the controllers, the scheduler; beside them the registry and the maker of volumes."""

from __future__ import annotations

from tools.cluster import build, kwok, network, pki, registry, units, volumes
from tools.cluster.node import LOST_AFTER_S
from tools.cluster.pki import API_PORT
from tools.cluster.state import CONTROL, Cluster
from tools.cluster.units import Part, Unit

ETCD = "http://127.0.0.1:2379"
API_SERVER = "kube-apiserver"
LEADERS = ("kube-controller-manager", "kube-scheduler")


def make_identities(cluster: Cluster) -> None:
    """The certificates and kubeconfig files of everyone but the nodes."""
    pki.make_authority(cluster)
    service = "kubernetes.default.svc"
    names = f"DNS:kubernetes,DNS:kubernetes.default,DNS:{service},DNS:{service}.cluster.local,DNS:localhost"
    addresses = f"IP:127.0.0.1,IP:{network.KUBERNETES_SERVICE},IP:{cluster.api_host}"
    pki.issue(cluster, "apiserver", "/CN=kube-apiserver", f"{names},{addresses}")
    pki.issue(
        cluster, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", "DNS:kubelet-client"
    )
    admin = pki.issue(cluster, "admin", "/O=system:masters/CN=admin", "DNS:admin")
    pki.write_kubeconfig(cluster, admin, cluster.kubeconfig)
    pki.give_to_caller(cluster.kubeconfig)
    for user in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        own = pki.issue(cluster, user, f"/CN=system:{user}", f"DNS:{user}")
        pki.write_kubeconfig(cluster, own, cluster.folder / f"{user}.kubeconfig")


def start(cluster: Cluster) -> None:
    unit = Unit(CONTROL, _parts(cluster))
    units.start(cluster, unit, lambda pid: network.connect_control(cluster, pid))


def _parts(cluster: Cluster) -> list[Part]:
    ready = [str(cluster.ready_file)]
    etcd = [
        str(build.program("etcd")),
        f"--data-dir={cluster.folder}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        # The data lives as long as the cluster; waiting for the disk would only make it slower.
        "--unsafe-no-fsync",
    ]
    return [
        Part("etcd", etcd),
        Part(API_SERVER, _api_server(cluster)),
        Part("kube-controller-manager", _controllers(cluster), needs=ready),
        Part("kube-scheduler", _scheduler(cluster), needs=ready),
        registry.part(cluster),
        volumes.part(cluster),
        kwok.part(cluster),
    ]


def _api_server(cluster: Cluster) -> list[str]:
    keys = pki.folder(cluster)
    return [
        str(build.program(API_SERVER)),
        f"--etcd-servers={ETCD}",
        f"--bind-address={cluster.api_host}",
        f"--advertise-address={cluster.api_host}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        f"--kubelet-client-certificate={keys}/kubelet-client.crt",
        f"--kubelet-client-key={keys}/kubelet-client.key",
        # The nodes' names are in no name server.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys}/tokens.pub",
        f"--service-account-signing-key-file={keys}/tokens.key",
        f"--service-cluster-ip-range={network.SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
    ]


def _quick_client() -> list[str]:
    return [
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--bind-address=127.0.0.1",
    ]


def _controllers(cluster: Cluster) -> list[str]:
    keys = pki.folder(cluster)
    return [
        str(build.program("kube-controller-manager")),
        f"--kubeconfig={cluster.folder}/kube-controller-manager.kubeconfig",
        f"--service-account-private-key-file={keys}/tokens.key",
        f"--root-ca-file={keys}/ca.crt",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        "--use-service-account-credentials=true",
        f"--node-monitor-grace-period={LOST_AFTER_S}s",
        "--node-monitor-period=1s",
        *_quick_client(),
    ]


def _scheduler(cluster: Cluster) -> list[str]:
    return [
        str(build.program("kube-scheduler")),
        f"--kubeconfig={cluster.folder}/kube-scheduler.kubeconfig",
        *_quick_client(),
    ]
