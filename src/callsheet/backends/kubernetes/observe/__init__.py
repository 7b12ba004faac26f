"""From what the cluster holds to what people ask about a run: status, reasons, logs, metrics, addresses."""
