//! Every role of a model whose numbers are used, in the order of execution.

use std::fmt::Arguments;

use attnscope_spec::ModelSpec;
use attnscope_spec::roles::{RoleVisitor, Use, Visited};

use super::roles::Role;

/// Returns every role of a model whose numbers are used.
pub(super) fn roles(spec: &ModelSpec) -> Vec<Role<'_>> {
    let mut list = List::default();
    spec.visit_roles(&mut list);
    list.0
}

#[derive(Default)]
struct List<'a>(Vec<Role<'a>>);

impl<'a> RoleVisitor<'a> for List<'a> {
    fn role(&mut self, key: Arguments<'_>, visited: Visited<'a>) {
        if visited.used != Use::Never {
            self.0.push(Role {
                key: key.to_string(),
                source: visited.source,
                division: visited.division,
            });
        }
    }
}
