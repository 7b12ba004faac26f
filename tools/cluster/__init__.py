"""A real Kubernetes of several nodes on one Linux machine, for developers and for the tests.

It exists so that nothing about Kubernetes is mocked: the API server, the scheduler, the kubelets, containerd and
CoreDNS are the real programs. It needs Linux, root and the standard library alone; no Docker, no virtual machine.
"""
