//! The arithmetic of attnscope: attention of one layer with its statistics, on the CPU and on other devices.
//!
//! It is independent of files and models. It is a separate crate because only this code must be compiled with optimisation.

pub mod attention;
pub mod bootstrap;
pub mod error;
pub mod kernels;
pub mod ops;
pub mod pace;
pub mod sample;
