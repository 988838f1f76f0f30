//! Live targets of commands: the code that a person named is run, recorded and judged.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::open_regular;
use attnscope_checks::{Check, Probes, Thresholds};
use attnscope_compare::Recording;
use attnscope_live::{LiveSession, LiveTarget, Request};
use attnscope_report::{Output, TargetVerdict};
use attnscope_run::{
    LiveRun, Recorded, Trace, is_captured, is_probe, judge_live, live_changes, live_request,
    probe_live, probed as tried, read_trace, unprobed,
};

use super::live_args::LiveArgs;
use super::progress::{Task, note};
use super::{PromptArgs, WhatIfArgs};

/// Refuses a live target where files are read.
///
/// # Errors
/// When the path names one.
pub fn refuse(path: &Path) -> Result<()> {
    if LiveTarget::parse(path).is_some() {
        bail!(
            "{}: this command reads weights itself; live models are for the screen, check, report, heads, effect, diff and trace (attnscope.describe makes a checkpoint of one)",
            path.display()
        );
    }
    Ok(())
}

/// Judges a live target: one recorded run, and the probes that its code can run.
///
/// # Errors
/// When the person's code fails, or no attention was seen in it.
pub fn judged(
    args: &LiveArgs,
    target: &LiveTarget,
    (prompt, what_if): (&PromptArgs, &WhatIfArgs),
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Result<TargetVerdict> {
    let mut session = args.session(target)?;
    let ran = recorded(args, &mut session, (prompt, what_if))?;
    let lacks = ran.recorded.live.as_ref();
    let lacks = lacks.and_then(|about| about.lacks.probes.clone());
    let probes = if what_if.is_set() {
        Err("probes run the code without what-ifs".to_owned())
    } else if let Some(reason) = lacks {
        Err(reason)
    } else {
        probed(&mut session, &ran.recorded, (args, prompt)).map_err(|e| format!("{e:#}"))
    };
    let (probes, first) = match probes {
        Ok(probes) => (probes, Vec::new()),
        Err(reason) => (unprobed(&reason), vec![format!("not probed: {reason}")]),
    };
    let mut verdicts = judge_live(&ran.trace, &probes, thresholds);
    verdicts.retain(|(check, _)| wants(check));
    Ok(TargetVerdict {
        target: target.to_string(),
        what_if: what_if.words(),
        first,
        notes: vec![ran.recorded.about.clone().into()],
        unread: Vec::new(),
        cover: tried(&probes),
        left_out: Vec::new(),
        next: Some(next(&ran.trace)),
        error: None,
        verdicts,
    })
}

/// What is left to do where nothing is wrong in one call of a person's code.
fn next(trace: &Trace) -> String {
    match &trace.absent_masks {
        Some(names) => format!(
            "give the call its {names}, so that they are tested: return (model, tokenizer, inputs)"
        ),
        None => "nothing".to_owned(),
    }
}

/// Runs a live target, and once more if its attention is to be changed: places are those of the run before.
///
/// # Errors
/// When the person's code fails, or no attention was seen in it.
pub fn recorded(
    args: &LiveArgs,
    session: &mut LiveSession,
    (prompt, what_if): (&PromptArgs, &WhatIfArgs),
) -> Result<LiveRun> {
    let ran = args.record(session, prompt)?;
    if !what_if.is_set() {
        return Ok(ran);
    }
    let asked = prompt.request()?;
    let request = live_request(asked.as_ref(), &args.declared(prompt))?;
    let request = Request {
        changes: live_changes(&ran.recorded, what_if.all())?,
        ..again(request, &ran.recorded)
    };
    args.record_request(session, &request, prompt)
}

/// The request that runs the prompt of a recorded run again, if the process chose it itself.
pub fn again(mut request: Request, recorded: &Recorded) -> Request {
    let is_open = request.ids.is_none() && request.text.is_none() && request.values.is_none();
    if is_open && !recorded.prompt.lacks_ids {
        request.ids = Some(recorded.prompt.given().tokens.clone());
    }
    request
}

/// Returns the run of a live target or of a trace file; `None` for anything else.
///
/// # Errors
/// When the person's code fails, or the trace cannot be read.
pub fn recorded_of(
    args: &LiveArgs,
    target: &Path,
    asked: (&PromptArgs, &WhatIfArgs),
) -> Result<Option<(Recorded, Trace)>> {
    if let Some(live) = LiveTarget::parse(target) {
        let mut session = args.session(&live)?;
        let ran = recorded(args, &mut session, asked)?;
        return Ok(Some((ran.recorded, ran.trace)));
    }
    if !is_captured(target) || is_probe(target) {
        return Ok(None);
    }
    if asked.1.is_set() {
        bail!(
            "{}: --what-if is for checkpoints and live models; a trace holds no weights to run again",
            target.display()
        );
    }
    let captured = attnscope_run::open_trace(target)?;
    let trace = read_trace(&captured, &args.declared(asked.0))?;
    Ok(Some((Recorded::new(captured, &trace), trace)))
}

fn probed(
    session: &mut LiveSession,
    recorded: &Recorded,
    (args, prompt): (&LiveArgs, &PromptArgs),
) -> Result<Probes> {
    let task = Task::begin("probes", 0);
    let told = &mut |_: &str, n_done: usize, _: usize| task.say(&format!("probes: {n_done} runs"));
    let declared = args.declared(prompt);
    Ok(probe_live(session, recorded, &declared, told, &|| false)?)
}

/// Files that stand for live targets, while their sessions last.
pub struct Recordings {
    sessions: Vec<LiveSession>,
    /// The paths to use in place of the targets.
    pub paths: [PathBuf; 2],
}

impl Recordings {
    /// Records those of two targets that are live; the second runs on the tokens of the first, if those are recorded.
    ///
    /// # Errors
    /// When the person's code fails, or no attention was seen in it.
    pub fn of(args: &LiveArgs, targets: [&Path; 2], prompt: &PromptArgs) -> Result<Self> {
        let mut recordings = Self {
            sessions: Vec::new(),
            paths: targets.map(Path::to_path_buf),
        };
        for (idx, target) in targets.into_iter().enumerate() {
            let Some(live) = LiveTarget::parse(target) else {
                continue;
            };
            let mut session = args.session(&live)?;
            let asked = prompt.request()?;
            let mut request = live_request(asked.as_ref(), &args.declared(prompt))?;
            let other = &recordings.paths[1 - idx];
            let takes_ids = session.about(&|| false)?.lacks.tokens.is_none();
            if asked.is_none() && takes_ids && attnscope_run::is_captured(other) {
                request.ids = Recording::open(other)?.tokens()?.tokens;
            }
            let ran = args.record_request(&mut session, &request, prompt)?;
            recordings.paths[idx] = ran.recorded.captured.path.clone();
            recordings.sessions.push(session);
        }
        Ok(recordings)
    }

    /// Whether there is any.
    pub fn is_live(&self) -> bool {
        !self.sessions.is_empty()
    }
}

/// Writes what a live target recorded as a trace.
///
/// # Errors
/// When the person's code fails, or the file cannot be written.
pub fn write_trace(
    args: &LiveArgs,
    target: &LiveTarget,
    (prompt, what_if): (&PromptArgs, &WhatIfArgs),
    output: Output,
) -> Result<()> {
    let mut session = args.session(target)?;
    let ran = recorded(args, &mut session, (prompt, what_if))?;
    let path = &ran.recorded.captured.path;
    let Some(file) = output.file() else {
        bail!("--output: expected a file for a trace");
    };
    let mut from = open_regular(path)?;
    let mut to = file;
    let n = std::io::copy(&mut from, &mut to)?;
    note(&format!("{} layers, {n} bytes", ran.recorded.layers.len()));
    output.close()?;
    Ok(())
}
