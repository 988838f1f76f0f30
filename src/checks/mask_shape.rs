//! The mask has a shape that no attention is meant to have, or not the one of the layers beside it.
//!
//! ## What it does
//! Fits a mask to what each recorded layer gives exactly nothing to: causal, causal shifted by one, counted from the wrong end
//! with fewer queries than keys, a window, a prefix, documents, wait-k, none. Layers of one kind that differ, a cross-attention
//! with a causal mask, and queries that never see their own position are findings. So is an encoder that hides later positions beside a
//! decoder that reads it: a warning, since one that streams does so on purpose.
//!
//! ## Why it matters
//! A mask can hide too much: nothing leaks, no check of forbidden keys fires, and the model is worse without an error. With a
//! cache, `is_causal=True` lets the newest query see the oldest keys alone. Seen in the wild: pytorch #108108.
//!
//! ## How it is measured
//! A cell counts as seen when some head gives it anything, or when its score is finite where scores hold their mask. Rows of
//! padding, rows with a NaN and rows that are even over all keys do not count. A shape is believed when no cell contradicts it
//! and 80 % of its rows and cells are as it says. Value: how many keys the mask is off, or how many layers differ.
//!
//! ## False alarms
//! A prefix, a wait-k mask and a hidden diagonal without a causal mask (locality self-attention, Lee et al. 2021) are information;
//! declared ones (`attnscope.prefix`, `attnscope.wait_k` in the metadata) pass. Queries that were recorded one call at a time over the same
//! keys have no position of their own: a pointer network hides what it has chosen. A cache with room for later keys looks like a mask that counts from the wrong end: then the finding is a warning, unless the
//! call was recorded or the attention mask says that the newest key is a token.
//!
//! ## Example
//! `torch.tril(ones(n, n), diagonal=-1)`: no query sees its own position, and the first sees nothing.

use std::collections::BTreeMap;

use attnscope_compute::attention::{Direction, LayerAudit, Shape};
use attnscope_spec::Stack;

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Status, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "mask-shape",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("mask_shape.rs"),
    judge,
};

/// An innocent explanation of a mask that is aligned to the first key.
const ROOM: &str = "a cache with room for later keys looks alike";

/// Thresholds for recognising a shape.
#[derive(Clone, Copy)]
struct Lines {
    /// Minimum number of rows.
    fewest_rows: usize,
    /// Heads may look this near by choice, so a window up to this width proves nothing.
    narrowest: usize,
}

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::of_our_run(
            evidence,
            Vec::new(),
            "the mask is the one that the configuration declares",
        );
    }
    let lines = Lines {
        fewest_rows: thresholds.mask_shape.fewest_rows as usize,
        narrowest: thresholds.mask_shape.narrowest_window as usize,
    };
    let seen: Vec<Seen<'_>> = evidence
        .layers
        .iter()
        .filter_map(|layer| Seen::of(layer, lines))
        .collect();
    if seen.is_empty() {
        return Verdict::not_applicable("no pattern was captured");
    }
    let mut findings: Vec<Finding> = seen.iter().filter_map(Seen::finding).collect();
    findings.extend(odd_layers(&seen));
    findings.extend(causal_encoder(&seen));
    let mut worst = findings
        .iter()
        .filter(|found| found.severity > Severity::Info)
        .peekable();
    let is_open = worst.peek().is_some() && worst.all(|found| found.evidence.contains(ROOM));
    let mut verdict = Verdict::of(findings, "every layer has a mask of a shape that is meant");
    if is_open {
        verdict.status = Status::Undecidable;
        verdict.why = format!("fewer queries than keys: {ROOM}");
    }
    verdict
}

/// A layer, and the mask that its pattern suggests.
struct Seen<'a> {
    layer: &'a LayerReport,
    audit: &'a LayerAudit,
    shape: &'a Shape,
    lines: Lines,
}

impl<'a> Seen<'a> {
    fn of(layer: &'a LayerReport, lines: Lines) -> Option<Self> {
        let audit = layer.audit()?;
        let shape = audit.shape.as_ref()?;
        Some(Self {
            layer,
            audit,
            shape,
            lines,
        })
    }

    fn is_square(&self) -> bool {
        self.shape.n_queries == self.shape.n_keys && !self.layer.spec.is_cross
    }

    /// Whether there are enough rows with enough keys. Heads that attend to one or two keys show a shape that no mask causes.
    fn has_rows(&self) -> bool {
        let is_wide = self
            .shape
            .window
            .is_none_or(|width| width > self.lines.narrowest);
        self.shape.n_queries >= self.lines.fewest_rows && self.shape.is_tight && is_wide
    }

    fn has_scores(&self) -> bool {
        let mut audits = self
            .layer
            .heads
            .iter()
            .filter_map(|head| head.audit.as_deref());
        audits.any(|audit| audit.has_scores)
    }

    fn said(&self, severity: Severity, value: f64, evidence: String, advice: &str) -> Finding {
        Finding {
            check: CHECK.id,
            severity,
            place: self.layer.place(),
            value,
            threshold: 0.0,
            unit: "keys",
            evidence,
            advice: advice.to_owned(),
        }
    }

    fn finding(&self) -> Option<Finding> {
        if self.audit.across_batch.is_some() {
            return None;
        }
        if self.layer.spec.is_cross {
            return self.cross();
        }
        if let found @ Some(_) = self.top_left() {
            return found;
        }
        let hidden = self.hidden();
        hidden.or_else(|| self.own()).or_else(|| self.shaped())
    }

    fn cross(&self) -> Option<Finding> {
        let ahead = match self.shape.direction {
            Direction::Causal(ahead) if self.has_rows() => Some(ahead),
            _ => None,
        };
        let shown = |ahead: isize| format!("query i sees keys up to i{}", offset(ahead));
        match (ahead, self.audit.wait_k) {
            (Some(ahead), Some(wait)) if ahead + 1 == wait as isize => None,
            (Some(ahead), Some(wait)) => Some(self.said(
                Severity::Error,
                (ahead + 1 - wait as isize) as f64,
                format!("{}: wait-{}, not the declared wait-{wait}", shown(ahead), ahead + 1),
                "compare the number of keys that the first query waits for with the configuration",
            )),
            (Some(ahead), None) if ahead > 0 => Some(self.said(
                Severity::Info,
                ahead as f64,
                format!("{}: a wait-{} mask", shown(ahead), ahead + 1),
                "declare it (attnscope.wait_k in the metadata) if it is meant",
            )),
            (Some(ahead), None) => Some(self.said(
                Severity::Error,
                ahead as f64,
                format!("{}: a causal mask over the other sequence, whose positions have nothing to do with the query's", shown(ahead)),
                "leave the causal mask out of cross-attention: only padding is hidden there",
            )),
            (None, Some(wait)) if self.shape.direction == Direction::Both && self.shape.n_queries >= self.lines.fewest_rows && wait < self.shape.n_keys => {
                Some(self.said(
                    Severity::Error,
                    wait as f64,
                    format!("queries see every key, although wait-{wait} is declared"),
                    "apply the wait-k mask to the cross-attention as well",
                ))
            }
            _ if self.audit.recorded.is_causal == Some(true) && self.shape.n_keys > 1 => Some(self.said(
                Severity::Error,
                0.0,
                "the call was made with is_causal=True over another sequence".to_owned(),
                "leave is_causal out of cross-attention",
            )),
            _ => None,
        }
    }

    /// A mask aligned to the first key although there are fewer queries than keys.
    fn top_left(&self) -> Option<Finding> {
        let (n_queries, n_keys) = (self.shape.n_queries, self.shape.n_keys);
        if n_queries >= n_keys {
            return None;
        }
        let is_recorded = self.audit.recorded.is_causal == Some(true);
        if !is_recorded && !self.shape.is_top_left {
            return None;
        }
        // A single query that puts everything on the first key may have a sink there.
        if !is_recorded && n_queries == 1 && !self.has_scores() {
            return None;
        }
        let heads = &self.layer.heads;
        // If the cache has room for later keys, the last key has not been written yet.
        let is_newest_real = heads.first().is_some_and(|head| {
            let real = head.summary.real_keys.as_deref();
            self.audit.has_pads && real.and_then(<[bool]>::last) == Some(&true)
        });
        let severity = if is_recorded || is_newest_real {
            Severity::Error
        } else {
            Severity::Warning
        };
        let else_it = if severity == Severity::Error {
            String::new()
        } else {
            format!(" ({ROOM})")
        };
        let call = if is_recorded {
            "is_causal=True counts"
        } else {
            "the mask counts"
        };
        Some(self.said(
            severity,
            (n_keys - n_queries) as f64,
            format!(
                "{n_queries} queries, {n_keys} keys: {call} from the first key, so that query i sees keys up to i; its own position \
                 i + {} holds exactly 0{else_it}",
                n_keys - n_queries
            ),
            "with a cache, align the mask with the last key: leave is_causal out for one query, or pass \
             torch.nn.attention.bias.causal_lower_right(n_queries, n_keys)",
        ))
    }

    /// Queries that never see their own position, see only later ones, or see exactly one too many. Steps over the same keys of another
    /// sequence have no position among them: a pointer network hides what it has chosen, which may be one key after the other.
    fn own(&self) -> Option<Finding> {
        if !self.is_square() || !self.has_rows() {
            return None;
        }
        let is_stepwise = self.audit.recorded.is_stepwise;
        let said = |severity, value, evidence: &str, advice| {
            Some(self.said(severity, value, evidence.to_owned(), advice))
        };
        match self.shape.direction {
            Direction::Inverted if is_stepwise => None,
            Direction::Inverted => said(
                Severity::Error,
                self.shape.n_keys as f64,
                "queries see later keys alone: the mask is the wrong way round",
                "invert the mask: masked_fill hides where it is true, scaled_dot_product_attention shows where it is true",
            ),
            Direction::Causal(1) if self.shape.window.is_none() => said(
                Severity::Error,
                1.0,
                "every query sees the next key as well: the mask is shifted by one",
                "use torch.triu(…, diagonal=1) for what is hidden, or torch.tril(…) for what is seen",
            ),
            Direction::Causal(ahead) if ahead < 0 => said(
                Severity::Error,
                ahead as f64,
                "no query sees its own position: the mask is shifted by one, and the first query sees nothing",
                "use torch.triu(…, diagonal=1) for what is hidden, or torch.tril(…) for what is seen",
            ),
            _ if self.shape.sees_own == Some(false) && !is_stepwise => said(
                Severity::Info,
                1.0,
                "no query sees its own position, and every one sees those beside it",
                "by design in locality self-attention (Lee et al. 2021); elsewhere leave the diagonal visible",
            ),
            _ => None,
        }
    }

    /// Tokens that are real according to the attention mask but that no query sees.
    fn hidden(&self) -> Option<Finding> {
        let is_whole = matches!(self.shape.direction, Direction::Both | Direction::Causal(0));
        let is_readable =
            is_whole && self.shape.n_queries >= self.lines.fewest_rows && self.is_square();
        if !self.audit.has_pads || !is_readable {
            return None;
        }
        let real = self.layer.heads.first()?.summary.real_keys.as_deref()?;
        let hidden = self
            .shape
            .unseen
            .iter()
            .filter(|idx| real.get(**idx) == Some(&true));
        let hidden: Vec<String> = hidden.map(usize::to_string).collect();
        let audits = self
            .layer
            .heads
            .iter()
            .filter_map(|head| head.audit.as_deref());
        let is_inverted = audits
            .map(|audit| audit.on_pads.mass)
            .any(|mass| mass > 0.0);
        let severity = if is_inverted {
            Severity::Error
        } else {
            Severity::Warning
        };
        // The probability of a single key may have been rounded to 0 in every row.
        let is_sure = is_inverted || self.has_rows() && (self.has_scores() || hidden.len() >= 2);
        (!hidden.is_empty() && is_sure).then(|| {
            let more = if is_inverted { ", while padding is seen: the mask is the wrong way round" } else { "" };
            self.said(
                severity,
                hidden.len() as f64,
                format!("no query sees the real keys {}{more}", hidden.join(", ")),
                "compare the padding mask with the tokens: some modules take true for padding, others for tokens",
            )
        })
    }

    /// Shapes that are worth knowing, or that differ from the declared one.
    fn shaped(&self) -> Option<Finding> {
        if !self.is_square() || !self.has_rows() {
            return None;
        }
        let info = |value: usize, evidence: String, advice| {
            Some(self.said(Severity::Info, value as f64, evidence, advice))
        };
        let declared = self.audit.is_declared_causal;
        let said = format!("queries see {}", self.shape.words());
        match (self.shape.direction, self.audit.prefix) {
            (Direction::Causal(0), Some(prefix)) if prefix > 1 && prefix < self.shape.n_keys => {
                Some(self.said(
                    Severity::Error,
                    prefix as f64,
                    format!("{said}, although a prefix of {prefix} keys is declared"),
                    "let every query see the whole prefix",
                ))
            }
            (Direction::Prefix(found), Some(prefix)) if found < prefix => Some(self.said(
                Severity::Error,
                (prefix - found) as f64,
                format!("{said}, although a prefix of {prefix} keys is declared"),
                "let every query see the whole prefix",
            )),
            (Direction::Prefix(found), None) if declared != Some(true) => info(
                found,
                said,
                "declare it (attnscope.prefix in the metadata) if it is meant",
            ),
            (Direction::Causal(0), None)
                if declared == Some(false) && self.layer.stack != Stack::Encoder =>
            {
                Some(self.said(
                    Severity::Warning,
                    0.0,
                    format!("{said}, although the mask is declared bidirectional"),
                    "leave the causal mask out, or declare the mask causal",
                ))
            }
            _ if self.shape.documents.len() > 1 && !self.has_documents() => info(
                self.shape.documents.len(),
                said,
                "declare them (--documents) if they are meant, so that leaks between them are found",
            ),
            _ => None,
        }
    }

    fn has_documents(&self) -> bool {
        let audits = self
            .layer
            .heads
            .iter()
            .filter_map(|head| head.audit.as_deref());
        audits.into_iter().any(|audit| audit.has_documents)
    }

    /// Whether the layer hides later keys; `None` if its rows do not show it.
    fn hides_later(&self) -> Option<bool> {
        if !self.is_square() || !self.has_rows() {
            return None;
        }
        match self.shape.direction {
            Direction::Causal(ahead) if ahead <= 0 => Some(true),
            Direction::Both => Some(false),
            _ => None,
        }
    }
}

/// Reports an encoder that hides later positions beside a decoder that does so too and reads its whole output. Without
/// cross-attention the two are halves of one causal model.
fn causal_encoder(seen: &[Seen<'_>]) -> Option<Finding> {
    let of = |stack: Stack| seen.iter().filter(move |seen| seen.layer.stack == stack);
    let is_causal = |seen: &Seen<'_>| {
        let is_whole = seen.shape.window.is_none() && seen.shape.documents.is_empty();
        seen.hides_later() == Some(true) && is_whole && seen.shape.direction == Direction::Causal(0)
    };
    let first = of(Stack::Encoder).next()?;
    let reads = seen.iter().any(|seen| seen.layer.spec.is_cross);
    let writes = of(Stack::Decoder).next().is_some() && of(Stack::Decoder).all(is_causal);
    let n = of(Stack::Encoder).count();
    (reads && writes && of(Stack::Encoder).all(is_causal)).then(|| Finding {
        unit: "layers",
        ..first.said(
            Severity::Warning,
            n as f64,
            format!("all {n} layers of the encoder hide later positions, as the decoder beside it does"),
            "leave the causal mask out of the encoder, which is given its whole input at once; nothing to do where it is meant to stream",
        )
    })
}

fn offset(ahead: isize) -> String {
    match ahead {
        0 => String::new(),
        ahead if ahead > 0 => format!(" + {ahead}"),
        ahead => format!(" − {}", -ahead),
    }
}

/// Reports layers of one kind that disagree on hiding later keys, when nothing declares which is right, and layers whose heads
/// disagree.
fn odd_layers(seen: &[Seen<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut kinds: BTreeMap<(Stack, &str), Vec<(&Seen<'_>, bool)>> = BTreeMap::new();
    for seen in seen {
        if let Some(hides) = seen.hides_later() {
            let kind = (seen.layer.stack, seen.audit.kind.as_str());
            kinds.entry(kind).or_default().push((seen, hides));
        }
    }
    for layers in kinds.values() {
        let n = layers.len();
        let n_hiding = layers.iter().filter(|(_, hides)| *hides).count();
        let is_declared = layers
            .iter()
            .any(|(seen, _)| seen.audit.is_declared_causal.is_some());
        if n_hiding == 0 || n_hiding == n || is_declared {
            continue;
        }
        // In a tie, the layers that do not hide are reported: a missing mask is more common than an extra one.
        let odd = 2 * n_hiding < n;
        let n_odd = layers.iter().filter(|(_, hides)| *hides == odd).count();
        let does = if odd {
            "hides later keys"
        } else {
            "sees later keys"
        };
        let others = if odd { "see them" } else { "hide them" };
        for (seen, _) in layers.iter().filter(|(_, hides)| *hides == odd) {
            findings.push(Finding {
                unit: "layers",
                ..seen.said(
                    Severity::Error,
                    n_odd as f64,
                    format!("the layer {does}, and {} of {n} layers of its kind {others}", n - n_odd),
                    "give every layer the mask; say which is right with --mask causal or --mask bidirectional",
                )
            });
        }
    }
    for seen in seen {
        findings.extend(odd_heads(seen));
    }
    findings
}

/// Reports a layer in which some heads hide later keys, and not because they look at few keys.
fn odd_heads(seen: &Seen<'_>) -> Option<Finding> {
    let n = seen.layer.heads.len();
    let hiding = &seen.audit.causal_heads;
    let is_mixed = !hiding.is_empty() && hiding.len() < n && seen.hides_later() == Some(false);
    if !is_mixed || seen.audit.is_declared_causal == Some(true) {
        return None;
    }
    let is_full = |head_idx: &usize| {
        let rows = &seen.layer.heads[*head_idx].summary.rows;
        let reach = seen.layer.heads[*head_idx]
            .audit
            .as_ref()
            .map_or(0, |audit| audit.n_zeroed);
        rows.len() >= seen.lines.fewest_rows && reach == 0
    };
    if !hiding.iter().all(is_full) {
        return None;
    }
    let heads: Vec<String> = hiding.iter().map(usize::to_string).collect();
    Some(Finding {
        unit: "heads",
        ..seen.said(
            Severity::Warning,
            hiding.len() as f64,
            format!(
                "heads {} hide later keys, the other {} of the layer see them",
                heads.join(", "),
                n - hiding.len()
            ),
            "give the mask an axis for heads that is broadcast: [1, 1, query, key]",
        )
    })
}
