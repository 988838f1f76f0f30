//! System services: settings, signals, downloads from the hub, object stores.

pub mod config;
#[cfg(any(feature = "hub", feature = "s3"))]
pub mod fetch;
pub mod signals;
pub mod store;
