//! System services: settings, signals, downloads from the hub, questions to a server.

pub mod ask;
pub mod config;
#[cfg(feature = "hub")]
pub mod fetch;
pub mod signals;
