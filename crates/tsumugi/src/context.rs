//! Suspending an endpoint and resuming it elsewhere.
