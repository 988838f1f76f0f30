//! Runs of this session that were on screen, to be shown again and paired: the strip and the list of runs read them.

use attnscope_checks::Severity;
use attnscope_prompt::Source;
use attnscope_run::WhatIf;
use attnscope_worker::{Against, RunId};

use super::app::App;
use super::editor::as_text;
use super::run::Run;
use super::runs::SecondRunKind;
use super::shown_name::name_of;
use crate::figure::token_label;

/// Runs known at most.
const MOST: usize = 50;

/// Where a run's model came from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// It is what was open.
    Open,
    /// It was compared with what was open.
    Target(Against),
    /// Code that was loaded anew, for the n-th time.
    Reload(usize),
}

/// A run that was on screen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The id of its last run.
    pub id: RunId,
    pub source: Source,
    /// Its text in words, also where it was given as ids.
    pub words: String,
    /// The name of its model or recording.
    pub name: String,
    pub origin: Origin,
    pub what_ifs: Vec<WhatIf>,
    /// Mean loss in nats per token, for models that predict the next one.
    pub loss: Option<f64>,
    /// Its worst warning or error.
    pub mark: Option<Severity>,
}

impl Seen {
    /// Whether two are runs of the same text through the same model.
    fn is_same(&self, other: &Self) -> bool {
        let of = |seen: &Self| {
            (
                seen.source.clone(),
                seen.name.clone(),
                seen.origin.clone(),
                seen.what_ifs.clone(),
            )
        };
        of(self) == of(other)
    }

    /// Whether it is the text through what is open, as it is.
    pub fn is_plain(&self) -> bool {
        self.origin == Origin::Open && self.what_ifs.is_empty()
    }

    /// What sets it apart from its text through what is open; empty if nothing does.
    pub fn apart(&self) -> String {
        let of = match &self.origin {
            Origin::Open => None,
            Origin::Target(_) => Some(self.name.clone()),
            Origin::Reload(nth) => Some(format!("reload {nth}")),
        };
        let what_ifs = self.what_ifs.iter().map(WhatIf::to_string);
        let all: Vec<String> = of.into_iter().chain(what_ifs).collect();
        all.join(", ")
    }

    /// How another run is made from this one as A.
    pub fn way_to(&self, other: &Self) -> SecondRunKind {
        let are_of_one = self.origin == other.origin && self.name == other.name;
        let is_of_one_text = self.source == other.source;
        if are_of_one && !is_of_one_text && self.what_ifs == other.what_ifs {
            let request = attnscope_prompt::Request {
                source: other.source.clone(),
                ..attnscope_prompt::Request::text("")
            };
            return SecondRunKind::Against(Against::Prompt(request));
        }
        if are_of_one
            && is_of_one_text
            && let Some(further) = other.what_ifs.strip_prefix(self.what_ifs.as_slice())
            && !further.is_empty()
        {
            return SecondRunKind::WhatIf(further.to_vec());
        }
        if let Origin::Target(against) = &other.origin
            && self.is_plain()
            && is_of_one_text
            && other.what_ifs.is_empty()
        {
            return SecondRunKind::Against(against.clone());
        }
        let words = match other.apart() {
            apart if is_of_one_text && !apart.is_empty() => apart,
            _ if is_of_one_text && other.name != self.name => other.name.clone(),
            _ if is_of_one_text => "the checkpoint as it is".to_owned(),
            apart if apart.is_empty() => format!("“{}”", shortened(&other.words, QUOTED)),
            apart => format!("“{}” {apart}", shortened(&other.words, QUOTED)),
        };
        SecondRunKind::Earlier(other.id, words)
    }
}

/// Characters of a text in titles and lists.
pub const QUOTED: usize = 40;

/// The beginning of a text, on one line.
pub fn quoted(source: Option<&Source>, n_chars: usize) -> String {
    shortened(&source.map(as_text).unwrap_or_default(), n_chars)
}

/// The text of a run in words; ids stay ids where there are no words.
fn words_of(run: &Run) -> String {
    if !matches!(run.source, Source::Ids(_)) {
        return as_text(&run.source);
    }
    let labels = run.prompt.given().labels.iter().take(MOST_WORDS);
    let labels: Vec<String> = labels.map(|label| token_label(label)).collect();
    labels.join(" ")
}

/// Words kept of ids.
const MOST_WORDS: usize = 1000;

/// The beginning of a text, on one line.
fn shortened(text: &str, n_chars: usize) -> String {
    let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if shown.chars().count() <= n_chars {
        return shown;
    }
    let cut: String = shown.chars().take(n_chars.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

impl App {
    /// What sets a run apart from its text through what is open, with the name of its model where the session had several.
    pub fn apart(&self, seen: &Seen) -> String {
        let mut others = self.runs.seen.iter();
        let is_other = |other: &Seen| other.origin == Origin::Open && other.name != seen.name;
        let name = others.any(is_other).then(|| seen.name.clone());
        let name = name.filter(|_| seen.origin == Origin::Open);
        let all = [name.unwrap_or_default(), seen.apart()];
        let all: Vec<String> = all.into_iter().filter(|part| !part.is_empty()).collect();
        all.join(", ")
    }

    /// A run's text in a few characters: its beginning, or what follows if another run's text begins in the same way.
    pub fn text_of(&self, seen: &Seen, n_chars: usize) -> String {
        let of = |seen: &Seen| shortened(&seen.words, usize::MAX);
        let own = of(seen);
        let others = self
            .runs
            .seen
            .iter()
            .filter(|other| other.source != seen.source);
        let n_shared = |other: &Seen| {
            let other = of(other);
            let pairs = own.chars().zip(other.chars());
            pairs.take_while(|(a, b)| a == b).count()
        };
        let n_shared = others.map(n_shared).max().unwrap_or(0);
        let n = own.chars().count();
        if n <= n_chars || n_shared + 1 < n_chars {
            return shortened(&seen.words, n_chars);
        }
        // From what differs, or the last words of a text that another one goes on from.
        let first = n_shared.min(n.saturating_sub(n_chars - 1));
        let is_within_word = own
            .chars()
            .nth(first.wrapping_sub(1))
            .is_some_and(|c| c != ' ');
        let rest: String = own.chars().skip(first).take(n_chars - 1).collect();
        let whole = rest.split_once(' ').filter(|_| is_within_word);
        format!(
            "…{}",
            whole.map_or(rest.as_str(), |(_, whole)| whole).trim()
        )
    }

    /// The entry of a run on screen.
    pub fn seen_of(&self, run: &Run) -> Option<&Seen> {
        self.runs.seen.iter().find(|seen| seen.id == run.id)
    }

    /// Notes a run that has begun as A.
    pub fn note_first(&mut self) {
        if let Some(run) = &self.runs.a
            && self.seen_of(run).is_none()
        {
            let seen = Seen {
                id: run.id,
                source: run.source.clone(),
                words: words_of(run),
                name: name_of(&run.subject),
                origin: Origin::Open,
                what_ifs: Vec::new(),
                loss: None,
                mark: None,
            };
            self.note_seen(seen);
        }
    }

    /// Notes a run that has begun as B.
    pub fn note_second(&mut self) {
        let both = self.runs.both();
        let (Some([a, b]), Some(second)) = (both, &self.runs.b) else {
            return;
        };
        if self.seen_of(b).is_some() {
            return;
        }
        let of_a = self.seen_of(a);
        let mut seen = Seen {
            id: b.id,
            source: b.source.clone(),
            words: words_of(b),
            name: name_of(&b.subject),
            origin: of_a.map_or(Origin::Open, |a| a.origin.clone()),
            what_ifs: of_a.map_or(Vec::new(), |a| a.what_ifs.clone()),
            loss: None,
            mark: None,
        };
        match &second.way {
            SecondRunKind::WhatIf(what_ifs) => seen.what_ifs.extend(what_ifs.iter().cloned()),
            SecondRunKind::Against(Against::Prompt(_)) | SecondRunKind::Earlier(..) => {}
            SecondRunKind::Against(Against::Reload) => {
                let n = |seen: &&Seen| matches!(seen.origin, Origin::Reload(_));
                seen.origin = Origin::Reload(self.runs.seen.iter().filter(n).count() + 1);
            }
            SecondRunKind::Against(against @ Against::Target(_)) => {
                (seen.origin, seen.what_ifs) = (Origin::Target(against.clone()), Vec::new());
            }
        }
        self.note_seen(seen);
    }

    /// Adds a run, or replaces an earlier one of the same text through the same model.
    fn note_seen(&mut self, new: Seen) {
        let all = &mut self.runs.seen;
        match all.iter_mut().find(|known| known.is_same(&new)) {
            Some(known) => *known = new,
            None => all.push(new),
        }
        let n_over = all.len().saturating_sub(MOST);
        all.drain(..n_over);
    }

    /// Notes the losses and findings of the runs on screen.
    pub fn note_figures(&mut self) {
        let runs = &mut self.runs;
        let second = runs.b.as_ref().and_then(|second| second.run.as_ref());
        for run in [runs.a.as_ref(), second].into_iter().flatten() {
            if let Some(seen) = runs.seen.iter_mut().find(|seen| seen.id == run.id) {
                let predictions = run.outcome().and_then(|of| of.predictions.as_ref());
                let loss = predictions.and_then(|predictions| predictions.loss);
                seen.loss = loss.or(seen.loss);
                let worst = run.findings.first().map(|finding| finding.severity);
                if run.judgement.is_some() {
                    seen.mark = worst.filter(|severity| *severity > Severity::Info);
                }
            }
        }
    }

    /// Whether a run that was on screen no longer is.
    pub fn has_runs_off_screen(&self) -> bool {
        let n_shown = 1 + usize::from(self.runs.second().is_some());
        self.runs.seen.len() > n_shown
    }
}
