"""What Prometheus and Grafana need to watch `glm serve`."""
