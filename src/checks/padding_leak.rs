//! Outputs of real tokens depend on padding.
//!
//! ## What it does
//! Runs the prompt without padding, with pads on the left and with pads on the right, positions counted over real tokens, and
//! compares what real tokens give. A probe of somebody else's model also pads rows of unequal length together, and compares each
//! with the row alone.
//!
//! ## Why it matters
//! One sentence gives different answers in different batches. Seen in the wild: TransformerLens #1609, transformers #29419.
//!
//! ## How it is measured
//! Residuals of real tokens after every layer, largest |difference| divided by the largest |value|; movements up to 1e-4 are
//! rounding, since other shapes add in another order (ours).
//!
//! A checkpoint is run on the first 256 positions of its first prompt, or on 64 where it needs 20 million multiplications a
//! token or more.
//!
//! ## False alarms
//! Families whose learned positions cannot be shifted are told positions explicitly; one that takes none is not tried. Pads on the
//! left are not tried where layers without attention read padding by design: recurrent ones, and those with a bias before a convolution;
//! nor where the first token sees all others, which a pad in its place does not; nor where an indexer picks blocks of keys, which begin
//! at fixed places, so that pads move a text against them. Without them a causal model is not tested: pads on
//! the right cannot reach its tokens. A probed model that takes no `position_ids` and
//! counts positions from the first pad on is not compared with pads on the left. Where pads on the left alone move something and
//! `misplaced-positions` says why a text that begins later is another one, the advice points there.
//!
//! ## Example
//! An encoder that is given no attention mask: every layer moves from the first on.

use super::evidence::{Evidence, Probed};
use super::invariance::{judge_invariance, moves};
use super::misplaced_positions::tell_no_distance;
use super::verdict::{Severity, Status, Tester, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "padding-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("padding_leak.rs"),
    judge,
};

const PASSED: &str = "real tokens do not depend on the padding that was compared";

const ADVICE: &str =
    "pass the attention mask, and positions counted over real tokens, to every layer";

const OF_ROWS: &str = "give each row of a batch its own padding mask, of shape [batch, 1, 1, key]: only rows of unequal length move, as where the \
                       mask of the first row, or one without a batch axis, is used for all";

const OF_BEGINNINGS: &str = "mend what misplaced-positions names first: outputs depend on where a text begins, padding or not";

const NOT_FINITE: &str = "let a query that is padding see a key, itself for instance: a softmax of −∞ alone is NaN, and in the next layer 0 · NaN \
                          reaches real tokens";

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probes = evidence.probes;
    let sees_later =
        matches!(&probes.future, Probed::Ran(future) if future.first_residual.is_some());
    if moves(&probes.length) && moves(&probes.padding) && !sees_later {
        return Verdict::not_applicable(
            "outputs depend on the number of tokens, padding or not: length-leak tells where",
        );
    }
    let Probed::Ran(probe) = &probes.padding else {
        return judge_invariance(evidence, CHECK.id, &probes.padding, ADVICE, PASSED);
    };
    let is_of = |case: &str, what: &str| case.contains(what);
    let moved = || {
        let cases = probe.cases.iter();
        cases.filter_map(|(case, moved)| Some((case, moved.as_ref()?.amount)))
    };
    let is_of_beginnings = moved().all(|(case, _)| is_of(case, "left"))
        && evidence.layers.iter().any(|layer| tell_no_distance(layer));
    let are_rows = moved().count() > 0 && moved().all(|(case, _)| is_of(case, "in a batch"));
    let is_lost = moved().any(|(_, amount)| !amount.is_finite());
    let advice = match (is_lost, are_rows) {
        (true, _) => NOT_FINITE,
        (false, _) if is_of_beginnings => OF_BEGINNINGS,
        (false, true) => OF_ROWS,
        (false, false) => ADVICE,
    };
    let mut verdict = judge_invariance(evidence, CHECK.id, &probes.padding, advice, PASSED);
    let has_left = probe.cases.iter().any(|(case, _)| is_of(case, "left"));
    if verdict.status == Status::Passed && !has_left {
        // What follows a token does not reach it in a causal model, padding or not.
        let is_causal =
            matches!(&probes.future, Probed::Ran(future) if future.first_residual.is_none());
        if is_causal {
            let why = "padding on the left was not compared, and on the right it cannot reach the tokens of a causal model";
            return Verdict::not_tested(why, Tester::Script);
        }
        verdict.why = format!("padding on the left was not compared; {}", verdict.why);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use attnscope_compute::attention::{
        AttentionSpec, Audit, LayerAudit, RecordedCall, RecordedPositions,
    };
    use attnscope_spec::Place;

    use super::super::evidence::{FutureProbe, InvarianceProbe, Movement, Probes, Subject};
    use super::super::made;
    use super::super::stats::LayerReport;
    use super::*;

    /// The verdict on padded cases, each of which moves or not, in a model that sees nothing later or everything.
    fn said(cases: &[(&str, bool)], is_causal: bool) -> Verdict {
        let cases: Vec<_> = cases
            .iter()
            .map(|(case, moves)| (*case, moves.then_some(0.5)))
            .collect();
        said_by(&cases, is_causal)
    }

    /// The verdict on padded cases, each of which moves by that much.
    fn said_by(cases: &[(&str, Option<f64>)], is_causal: bool) -> Verdict {
        said_of(&[], cases, is_causal)
    }

    /// As [`said_by`], with recorded layers.
    fn said_of(
        layers: &[Arc<LayerReport>],
        cases: &[(&str, Option<f64>)],
        is_causal: bool,
    ) -> Verdict {
        let movement = |amount: f64| Movement {
            place: Place::MODEL,
            name: None,
            amount,
        };
        let padding = InvarianceProbe {
            tolerance: 1e-4,
            cases: cases
                .iter()
                .map(|(case, moved)| ((*case).to_owned(), moved.map(movement)))
                .collect(),
            largest: 0.5,
        };
        let future = FutureProbe {
            tolerance: 1e-6,
            first_pattern: None,
            first_residual: (!is_causal).then(|| movement(0.5)),
            worst: None,
            influence: Default::default(),
        };
        let probes = Probes {
            padding: Probed::Ran(padding),
            future: Probed::Ran(future),
            ..Probes::none("not run")
        };
        let evidence = Evidence::of_layers(Subject::Probe, layers, &probes, 1e-5);
        judge(&evidence, &Thresholds::default())
    }

    #[test]
    fn padding_on_the_right_alone_tests_no_causal_model() {
        let right = [("8 pads on the right", false)];
        assert_eq!(said(&right, true).status, Status::NotTested);
        let both_sides = said(&right, false);
        assert_eq!(both_sides.status, Status::Passed);
        assert!(both_sides.why.contains("on the left was not compared"));
        let both = [("right 8", false), ("left 8", false)];
        assert_eq!(said(&both, true).status, Status::Passed);
    }

    #[test]
    fn tokens_that_padding_makes_nan_are_told_as_such() {
        let verdict = said_by(&[("left 8", Some(f64::INFINITY))], true);
        let finding = &verdict.findings[0];
        assert!(finding.evidence.ends_with("it becomes NaN or infinite"));
        assert!(finding.advice.contains("0 · NaN"), "{}", finding.advice);
    }

    #[test]
    fn rows_of_unequal_length_that_move_alone_point_at_their_masks() {
        let rows = "padding, 5 real tokens in a batch padded on the left to 9";
        let alone = said(&[("left 8", false), (rows, true)], true);
        assert!(alone.findings[0].advice.contains("its own padding mask"));
        let all = said(&[("left 8", true), (rows, true)], true);
        assert!(
            all.findings[0]
                .advice
                .starts_with("pass the attention mask")
        );
    }

    #[test]
    fn a_text_that_begins_later_is_told_apart_from_padding() {
        let rotated = |what: &str| {
            let scores = vec![vec![0.0; 4]; 4];
            let spec = AttentionSpec::plain(1, 1, 4, true);
            let mut layer = made::layer(spec, &[scores], 1.0);
            let positions = RecordedPositions {
                rotated: Some(what.to_owned()),
                ..RecordedPositions::default()
            };
            let recorded = RecordedCall {
                positions: Some(positions),
                ..RecordedCall::default()
            };
            let of_layer = LayerAudit {
                recorded,
                ..LayerAudit::default()
            };
            layer.heads[0].audit = Some(Box::new(Audit {
                of_layer: Some(Box::new(of_layer)),
                ..Audit::default()
            }));
            Arc::new(layer)
        };
        let advice = |what: &str, right: bool| {
            let moved = [("8 pads on the left", Some(0.5))];
            let mut cases = moved.to_vec();
            cases.push(("8 pads on the right", right.then_some(0.5)));
            let verdict = said_of(&[rotated(what)], &cases, true);
            assert_eq!(verdict.findings[0].severity, Severity::Error);
            verdict.findings[0].advice.clone()
        };
        assert_eq!(advice("keys", false), OF_BEGINNINGS);
        // Pads on the right do not move where a text begins, and queries and keys that turn alike tell distances.
        assert_eq!(advice("keys", true), ADVICE);
        assert_eq!(advice("both", false), ADVICE);
    }
}
