//! What a judgement puts to the test: the boundaries that its prompts cross, and what its probes tried.

use attnscope_checks::{Boundary, InvarianceProbe, Probed, Probes};
use attnscope_spec::ModelSpec;

use super::boundaries::{boundaries, end_of_context};

/// Something beyond which a model computes otherwise, and whether it was crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    pub boundary: String,
    pub is_crossed: bool,
    /// Tokens that a prompt needs to cross it; `None` where no number of tokens does.
    pub needs: Option<usize>,
}

/// Boundaries of a model, and whether a longest prompt of so many tokens crosses them.
pub fn crossings(spec: &ModelSpec, longest: usize) -> Vec<Crossing> {
    let at = |boundary: Boundary| Crossing {
        boundary: boundary.what,
        is_crossed: longest > boundary.n_tokens,
        needs: Some(boundary.n_tokens + 1),
    };
    let by_length = boundaries(spec).into_iter().map(at);
    // What is beyond the context is for `beyond-context`: here it is filled.
    let context = spec.n_ctx.map(|n_ctx| Crossing {
        boundary: end_of_context(n_ctx),
        is_crossed: longest >= n_ctx,
        needs: Some(n_ctx),
    });
    by_length.chain(context).collect()
}

/// What probes tried that no number of tokens does.
pub fn probed(probes: &Probes) -> Vec<Crossing> {
    let has = |side: &str| match &probes.padding {
        Probed::Ran(InvarianceProbe { cases, .. }) => {
            cases.iter().any(|(case, _)| case.contains(side))
        }
        _ => false,
    };
    let is_run = |probe: &Probed<InvarianceProbe>| matches!(probe, Probed::Ran(_));
    let tried = [
        ("padding on the left", has("left")),
        ("padding on the right", has("right")),
        ("documents packed together", is_run(&probes.documents)),
        ("a cache of keys and values", is_run(&probes.cache)),
    ];
    let tried = tried.into_iter().map(|(what, is_crossed)| Crossing {
        boundary: what.to_owned(),
        is_crossed,
        needs: None,
    });
    tried.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_of_padding_are_told_apart_by_what_was_tried() {
        let mut probes = Probes::none("none was run");
        assert!(probed(&probes).iter().all(|tried| !tried.is_crossed));
        probes.padding = Probed::Ran(InvarianceProbe {
            tolerance: 1e-6,
            largest: 0.0,
            cases: vec![("4 pads on the right".to_owned(), None)],
        });
        let crossed: Vec<String> = probed(&probes)
            .into_iter()
            .filter(|tried| tried.is_crossed)
            .map(|tried| tried.boundary)
            .collect();
        assert_eq!(crossed, ["padding on the right"]);
    }
}
