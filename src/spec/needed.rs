//! Every tensor that a spec reads, with the shape it must have: checked before anything runs.

use std::collections::BTreeSet;
use std::fmt::Arguments;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;

use crate::roles::{RoleVisitor, Source, Use, Visited};
use crate::{BlockSpec, FeedForward, LinearSource, ModelSpec, StackSpec};

/// A tensor's name and shape.
pub type NeededTensor<'a> = (&'a str, Vec<usize>);

/// Collects the tensors of roles that hold what is computed with.
#[derive(Default)]
struct Needed<'a>(Vec<NeededTensor<'a>>);

impl<'a> RoleVisitor<'a> for Needed<'a> {
    fn role(&mut self, _: Arguments<'_>, visited: Visited<'a>) {
        match visited.source {
            Source::Numbers { .. } => {}
            source => self.0.push((source.tensor(), source.stored_shape())),
        }
    }
}

/// Collects what roles are stored as.
#[derive(Default)]
struct Stored<'a>(Vec<Source<'a>>);

impl<'a> RoleVisitor<'a> for Stored<'a> {
    fn role(&mut self, _: Arguments<'_>, visited: Visited<'a>) {
        self.0.push(visited.source);
    }
}

/// Returns the tensors that some walk visits.
fn needed<'a>(walk: impl FnOnce(&mut Needed<'a>)) -> Vec<NeededTensor<'a>> {
    let mut needed = Needed::default();
    walk(&mut needed);
    needed.0
}

impl ModelSpec {
    /// Every tensor that the model computes with, in the order of computation.
    pub fn needed_tensors(&self) -> Vec<NeededTensor<'_>> {
        needed(|visitor| self.visit_roles(visitor))
    }

    /// Tensors of the head.
    pub fn head_tensors(&self) -> Vec<NeededTensor<'_>> {
        needed(|visitor| self.visit_head(visitor))
    }

    /// Checks that every needed tensor is there in its shape.
    ///
    /// # Errors
    /// Names the first tensor that is missing or has another shape.
    pub fn check_tensors(&self, tensors: &Tensors) -> Result<()> {
        let mut stored = Stored::default();
        self.visit_roles(&mut stored);
        stored.0.iter().try_for_each(|source| {
            let (name, shape) = (source.tensor(), source.stored_shape());
            match source {
                Source::Numbers { .. } => tensors.expect_numbers(name, &shape).map(drop),
                _ => tensors.expect(name, &shape).map(drop),
            }
        })
    }

    /// Names of all tensors that the model reads.
    pub fn read_names(&self) -> BTreeSet<&str> {
        let mut stored = Stored::default();
        self.visit_roles(&mut stored);
        stored.0.iter().map(Source::tensor).collect()
    }

    /// Tensors of the checkpoint that the model never reads.
    pub fn unused_tensors<'a>(&self, tensors: &'a Tensors) -> Vec<&'a str> {
        let needed = self.read_names();
        let names = tensors.iter().map(|(name, _)| name);
        names.filter(|name| !needed.contains(name)).collect()
    }

    /// Number of multiplications that one token costs in the maps of all blocks and of the head.
    pub fn n_multiplications(&self) -> usize {
        let blocks = self.stacks.iter().flat_map(|stack| stack.blocks());
        let maps = blocks.flat_map(BlockSpec::linears);
        let head = self.head.iter().map(|head| &head.unembed);
        maps.chain(head).map(|map| map.n_in * map.n_out()).sum()
    }
}

impl StackSpec {
    /// Tensors of one layer; all of a recurrent network count as one.
    pub fn layer_tensors(&self, layer_idx: usize) -> Option<Vec<NeededTensor<'_>>> {
        if self.recurrence().is_some() {
            return Some(needed(|visitor| self.visit_recurrence(visitor)));
        }
        Some(self.blocks().get(layer_idx)?.tensors())
    }

    /// Tensors of what runs before the first block.
    pub fn embedding_tensors(&self) -> Vec<NeededTensor<'_>> {
        needed(|visitor| self.visit_embedding(visitor))
    }

    /// Tensors of the norm behind the last block.
    pub fn norm_tensors(&self) -> Vec<NeededTensor<'_>> {
        needed(|visitor| self.visit_final_norm(visitor))
    }
}

impl BlockSpec {
    /// Tensors of the block.
    pub fn tensors(&self) -> Vec<NeededTensor<'_>> {
        needed(|visitor| self.visit_roles(visitor))
    }

    /// The affine maps that one token goes through: of the experts, the first and the shared one.
    pub fn linears(&self) -> Vec<&LinearSource> {
        let mut maps = Maps::default();
        self.visit_roles(&mut maps);
        maps.0
    }
}

impl FeedForward {
    /// The affine maps that one token goes through: of the experts, the first and the shared one.
    pub fn linears(&self) -> Vec<&LinearSource> {
        let mut maps = Maps::default();
        self.visit_roles(&mut maps);
        maps.0
    }
}

/// Collects the maps that one token goes through.
#[derive(Default)]
struct Maps<'a>(Vec<&'a LinearSource>);

impl<'a> RoleVisitor<'a> for Maps<'a> {
    fn role(&mut self, _: Arguments<'_>, visited: Visited<'a>) {
        if let (Source::Matrix(linear), Use::EveryToken | Use::Expert(0)) =
            (visited.source, visited.used)
        {
            self.0.push(linear);
        }
    }
}
