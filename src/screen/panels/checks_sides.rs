//! Findings of two runs: those of only one run, and those of both.

use attnscope_checks::Finding;

use crate::state::run::Run;
use crate::state::scene::Scene;
use crate::state::views::Sides;

/// Findings of both runs: first those of B only, then those of A only, then those of both.
pub fn both_findings(app: Scene<'_>) -> Option<Vec<(&Finding, Sides)>> {
    let are_judged = |both: &[&Run; 2]| both.iter().all(|run| run.judgement.is_some());
    let both = app.both_runs().filter(are_judged);
    let [a, b] = both.filter(|_| app.shows_difference())?;
    // Findings match if check, layer and head are equal, whatever their values.
    let is_one = |one: &Finding, other: &Finding| {
        let place = |finding: &Finding| {
            (
                finding.place.grid(),
                finding.place.layer_idx,
                finding.place.head_idx,
            )
        };
        one.check == other.check && place(one) == place(other)
    };
    let is_in =
        |run: &Run, finding: &Finding| run.findings.iter().any(|other| is_one(finding, other));
    let of_b = b.findings.iter().map(|finding| {
        let sides = if is_in(a, finding) {
            Sides::Both
        } else {
            Sides::OnlyB
        };
        (finding, sides)
    });
    let of_a = a.findings.iter().filter(|finding| !is_in(b, finding));
    let mut all: Vec<(&Finding, Sides)> = of_b
        .chain(of_a.map(|finding| (finding, Sides::OnlyA)))
        .collect();
    all.sort_by_key(|(_, sides)| *sides);
    Some(all)
}
