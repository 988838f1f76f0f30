//! The arithmetic of attnscope: attention of one layer with its statistics, on CPU and on devices.
//!
//! It knows neither files nor models. It is a crate of its own because it alone needs an optimising compiler.

pub mod attention;
pub mod bootstrap;
pub mod error;
pub mod kernels;
pub mod ops;
pub mod pace;
pub mod sample;
