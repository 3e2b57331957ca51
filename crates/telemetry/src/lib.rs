//! Measuring inside: registry, histograms, Prometheus text, log set-up.
