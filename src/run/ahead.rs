//! Reads ahead: while a layer runs, the system is asked for the weights of what runs next.

use std::collections::BTreeSet;
use std::fmt::Arguments;

use attnscope_checkpoint::Ahead;
use attnscope_spec::roles::{RoleVisitor, Source, Use, Visited};
use attnscope_spec::{Model, Stack, StackSpec};

/// Asks for the weights of one layer at a time.
pub struct ReadAhead<'a> {
    model: &'a Model,
    ahead: Ahead,
}

impl<'a> ReadAhead<'a> {
    pub fn of(model: &'a Model) -> Self {
        Self {
            model,
            ahead: Ahead::begin(),
        }
    }

    /// Asks for a layer of a stack; behind its last layer, for the final norm and the head.
    pub fn layer(&self, stack: &StackSpec, layer_idx: usize) {
        let mut names = Names::default();
        match stack.blocks().get(layer_idx) {
            Some(block) => block.visit_roles(&mut names),
            None => {
                stack.visit_final_norm(&mut names);
                if stack.stack != Stack::Encoder {
                    self.model.spec.visit_head(&mut names);
                }
            }
        }
        self.ahead.ask(&self.model.checkpoint.tensors, names.0);
    }
}

/// Names of the tensors that every token needs.
#[derive(Default)]
struct Names<'a>(BTreeSet<&'a str>);

impl<'a> RoleVisitor<'a> for Names<'a> {
    fn role(&mut self, key: Arguments<'_>, visited: Visited<'a>) {
        let is_elsewhere = match &visited.source {
            // A tensor that holds the maps of several layers or experts, of which one is read.
            Source::Matrix(linear) | Source::Bias(linear) => linear.slab.is_some(),
            // Rows of an embedding; only the head reads all rows of a table.
            Source::Table(_) => key.to_string().contains("by_token"),
            Source::Vector { .. } | Source::Numbers { .. } => false,
        };
        if visited.used == Use::EveryToken && !is_elsewhere {
            self.0.insert(visited.source.tensor());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use attnscope_checkpoint::Checkpoint;

    use super::*;

    #[test]
    fn each_tensor_is_asked_for_with_the_layer_that_reads_it() {
        let root = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/induction"
        ));
        let checkpoint = Checkpoint::open(root).expect("opens");
        let model = attnscope_families::read(checkpoint).expect("is understood");
        let stack = model.spec.main_stack();
        let of = |layer_idx: usize| {
            let mut names = Names::default();
            stack.blocks()[layer_idx].visit_roles(&mut names);
            names.0
        };
        let n = stack.n_layers();
        let layers: Vec<BTreeSet<&str>> = (0..n).map(of).collect();
        let all: BTreeSet<&str> = layers.iter().flatten().copied().collect();
        assert_eq!(all.len(), layers.iter().map(BTreeSet::len).sum::<usize>());
        let mut behind = Names::default();
        stack.visit_final_norm(&mut behind);
        model.spec.visit_head(&mut behind);
        let mut before = Names::default();
        stack.visit_embedding(&mut before);
        let stored = model.checkpoint.tensors.iter().map(|(name, _)| name);
        let unread = model.checkpoint.unread.iter().map(String::as_str);
        let left: BTreeSet<&str> = stored
            .filter(|name| !all.contains(name) && !behind.0.contains(name))
            .filter(|name| !before.0.contains(name) && !unread.clone().any(|of| of == *name))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
