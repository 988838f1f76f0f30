//! System services: settings, signals, downloads from the hub.

pub mod config;
#[cfg(feature = "hub")]
pub mod fetch;
pub mod signals;
