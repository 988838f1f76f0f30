//! Roles of stored tensors: what a model reads each of them for. Whatever needs the tensors of a spec is a visitor of its roles.

use std::fmt::Arguments;

use crate::{LinearSource, TableSource};

/// Stored source of a role's numbers.
#[derive(Debug, Clone)]
pub enum Source<'a> {
    /// The matrix of an affine map.
    Matrix(&'a LinearSource),
    /// The bias of an affine map.
    Bias(&'a LinearSource),
    /// An embedding table.
    Table(&'a TableSource),
    Vector {
        tensor: &'a str,
        shape: Vec<usize>,
    },
    /// Whole numbers that name something, and are never computed with.
    Numbers {
        tensor: &'a str,
        shape: Vec<usize>,
    },
}

impl<'a> Source<'a> {
    /// Returns the name of the stored tensor.
    pub fn tensor(&self) -> &'a str {
        match self {
            Self::Matrix(linear) => &linear.weight,
            Self::Bias(linear) => linear.bias.as_deref().unwrap_or_default(),
            Self::Table(table) => &table.tensor,
            Self::Vector { tensor, .. } | Self::Numbers { tensor, .. } => tensor,
        }
    }

    /// Returns the shape of the stored tensor.
    pub fn stored_shape(&self) -> Vec<usize> {
        match self {
            Self::Matrix(linear) => linear.stored_shape(),
            Self::Bias(linear) => linear.stored_bias_shape(),
            Self::Table(table) => vec![table.n_rows, table.width],
            Self::Vector { shape, .. } | Self::Numbers { shape, .. } => shape.clone(),
        }
    }
}

/// Division of a map's outputs, or of a vector's values, among heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Not divided.
    None,
    /// Outputs are head-major and rotate by position: queries and keys.
    Rotating(Heads),
    /// Outputs are head-major: values.
    Outputs(Heads),
    /// Inputs are head-major: the output projection.
    Inputs(Heads),
}

/// Heads of one width, and the part of each that rotates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub n: usize,
    pub width: usize,
    /// First rotated dimension, and their number; 0 if none rotates.
    pub rotary: (usize, usize),
}

/// When a role's numbers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// For every token.
    EveryToken,
    /// For tokens that are routed to this expert.
    Expert(usize),
    /// For every distance between two tokens.
    EveryDistance,
    /// Never: they are stored, but the layer reuses the keys and values of another one.
    Never,
}

/// One use of a stored tensor, or of a part of it.
#[derive(Debug, Clone)]
pub struct Visited<'a> {
    pub source: Source<'a>,
    pub division: Division,
    pub used: Use,
}

/// Receives every role. Its key says what it is for: `L3.attn.q`, `encoder.L0.mlp.up.bias`, `embed.tokens`.
pub trait RoleVisitor<'a> {
    fn role(&mut self, key: Arguments<'_>, visited: Visited<'a>);
}
