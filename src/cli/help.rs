//! The command line as --help shows it: commands by what a person wants, an example first, options under headings.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::Cli;

/// What a person wants, the commands for it, and what they are for.
type Group = (&'static str, &'static [&'static str], &'static str);

/// Commands by what a person wants. A test holds every visible command to exactly one group.
const GROUPS: &[Group] = &[
    (
        "Look",
        &["open", "heads", "trace", "plot", "demo"],
        "the screen; types of heads; values as safetensors; pictures; demos",
    ),
    (
        "Judge",
        &["check", "explain", "thresholds"],
        "what is wrong and what to do; what a check does; its thresholds",
    ),
    (
        "Compare",
        &["diff", "logprobs", "serve-check", "verify"],
        "where two models, ports or engines part, and why",
    ),
    (
        "Follow",
        &["history", "watch", "cache"],
        "when findings of a training began; a job that stops on them",
    ),
    (
        "Measure",
        &["effect", "lab"],
        "what heads and layers do; simulations of softmax and scale",
    ),
    (
        "Report",
        &["report", "batch", "merge", "schema"],
        "statistics as JSON, CSV, Parquet, HTML; batches; JSON Schemas",
    ),
    (
        "Files",
        &["tensors", "tokens", "guess", "capture-script"],
        "what is stored; unknown weights; record attention in your own code",
    ),
    (
        "Set up",
        &["config", "keys", "completions", "man"],
        "settings and keys in force; shell completions; manual pages",
    ),
];

/// The form of the program's own help, which lists groups in place of thirty commands.
const FORM: &str = "{about}\n\n{usage-heading} {usage}{after-help}\n";

/// One command line for each command, which its help begins with.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "open",
        "attnscope open runs/step-400 \"the king took a quiet story\"",
    ),
    (
        "check",
        "attnscope check runs/step-400 --text \"the king took a quiet story\"",
    ),
    ("explain", "attnscope explain wrong-axis"),
    ("thresholds", "attnscope thresholds > thresholds.toml"),
    (
        "report",
        "attnscope report runs/step-* --inputs prompts.jsonl --format csv --output heads.csv",
    ),
    (
        "batch",
        "attnscope batch runs/step-* --inputs prompts.jsonl --output table --shard 1/8",
    ),
    ("merge", "attnscope merge table --output table.parquet"),
    (
        "heads",
        "attnscope heads runs/step-400 --inputs prompts.jsonl",
    ),
    (
        "effect",
        "attnscope effect runs/step-400 \"the king took a quiet story\" --by ablation",
    ),
    (
        "quality",
        "attnscope quality translator --inputs pairs.jsonl",
    ),
    (
        "history",
        "attnscope history runs --text \"the king took a quiet story\"",
    ),
    ("watch", "attnscope watch run.jsonl --fail-on error"),
    ("cache", "attnscope cache list"),
    (
        "trace",
        "attnscope trace runs/step-400 \"the king\" --hooks pattern,scores --output values.safetensors",
    ),
    ("demo", "attnscope demo collapse"),
    (
        "verify",
        "attnscope verify runs/step-400 \"the king took a quiet story\" --device candle",
    ),
    ("diff", "attnscope diff runs/step-400 port.safetensors"),
    (
        "logprobs",
        "attnscope logprobs runs/step-400 --inputs prompts.jsonl --output mine.jsonl",
    ),
    (
        "serve-check",
        "attnscope serve-check http://localhost:8000 --checkpoint runs/step-400 --inputs prompts.jsonl",
    ),
    (
        "plot",
        "attnscope plot runs/step-400 \"the king\" --panel head --layer 1 --head 5 --output head.svg",
    ),
    ("sweep", "attnscope sweep --norm 8 --std 1"),
    ("lab", "attnscope lab variance"),
    (
        "align",
        "attnscope align --queries en.npz --keys de.npz --query-text \"she bought\" --key-text \"sie kauft\"",
    ),
    (
        "capture-script",
        "attnscope capture-script > attnscope_capture.py",
    ),
    ("tensors", "attnscope tensors runs/step-400 --stats"),
    (
        "tokens",
        "attnscope tokens runs/step-400 --text \"the king\"",
    ),
    (
        "guess",
        "attnscope guess weights.pth --text \"the king took a quiet story\"",
    ),
    ("schema", "attnscope schema check"),
    ("config", "attnscope config"),
    ("keys", "attnscope keys --check"),
    ("completions", "attnscope completions bash > attnscope.bash"),
    ("man", "attnscope man check"),
];

/// Options about how a checkpoint is read.
pub(super) const OF_CHECKPOINT: &[&str] = &[
    "weights",
    "no_settings",
    "no_adapter",
    "tokenizer",
    "base",
    "offline",
    "set",
    "what_if",
];

/// Headings of options that many commands share. What has none is the command's own, and comes first.
const HEADINGS: [(&str, &[&str]); 3] = [
    (
        "Prompt",
        &[
            "text",
            "text_file",
            "image",
            "tokens",
            "values",
            "target_text",
            "target_tokens",
            "generate",
            "temperature",
            "top_k",
            "top_p",
            "seed",
            "chat",
            "system",
            "attention_mask",
            "positions",
            "no_special_tokens",
            "truncate",
            "inputs",
        ],
    ),
    ("Model", OF_CHECKPOINT),
    ("Run", &["device", "threads", "quiet", "log"]),
];

/// The command line with examples and headings, as manual pages and completions have it.
pub(super) fn described() -> Command {
    let names: Vec<String> = Cli::command()
        .get_subcommands()
        .map(|own| own.get_name().to_owned())
        .collect();
    let mut all = Cli::command();
    for name in names {
        all = all.mut_subcommand(name, explained);
    }
    all
}

/// The command line as it is parsed and as the program's own help shows it.
pub(super) fn command() -> Command {
    described()
        .help_template(FORM)
        .override_usage("attnscope [CHECKPOINT | FILE.py:FUNCTION] [TEXT]    opens the screen\n       attnscope COMMAND …")
        .after_help(short_overview())
        .after_long_help(overview())
}

impl Cli {
    /// Reads the command line. `--json` is spelled out where a command takes it.
    ///
    /// # Errors
    /// When it cannot be understood, or help or the version is asked for.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let matches = command().try_get_matches_from(&arguments)?;
        let is_json = asks_for_json(&matches);
        if !is_json {
            return Self::from_arg_matches(&matches);
        }
        let spelled_out = arguments.into_iter().map(|word| {
            if word == "--json" {
                "--format=json".into()
            } else {
                word
            }
        });
        Self::from_arg_matches(&command().try_get_matches_from(spelled_out)?)
    }
}

/// Whether the command that was called, or the one inside of it, has --json.
fn asks_for_json(matches: &ArgMatches) -> bool {
    matches.subcommand().is_some_and(|(_, own)| {
        matches!(own.try_get_one::<bool>("json"), Ok(Some(true))) || asks_for_json(own)
    })
}

/// One command with its example, its shared options under headings, and --json where it writes JSON.
fn explained(own: Command) -> Command {
    let example = EXAMPLES.iter().find(|(name, _)| *name == own.get_name());
    let mut own = match example {
        Some((_, line)) => own.before_help(format!("Example:\n  {line}")),
        None => own,
    };
    let inner: Vec<String> = own
        .get_subcommands()
        .map(|inner| inner.get_name().to_owned())
        .collect();
    for name in inner {
        own = own.mut_subcommand(name, explained);
    }
    own = own.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let heading = HEADINGS.iter().find(|(_, ids)| ids.contains(&id));
        match heading.filter(|_| arg.get_help_heading().is_none() && !arg.is_positional()) {
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
    });
    if writes_json(&own) {
        let short = Arg::new("json").long("json").action(ArgAction::SetTrue);
        own = own.arg(
            short
                .help("Short for --format json")
                .conflicts_with("format"),
        );
    }
    own
}

/// Whether a command has a format, and JSON among them.
fn writes_json(own: &Command) -> bool {
    let formats = own.get_arguments().find(|arg| arg.get_id() == "format");
    formats.is_some_and(|arg| {
        arg.get_possible_values()
            .iter()
            .any(|value| value.matches("json", false))
    })
}

/// Groups with the commands of each and what they are for, in one screen of 80 × 24.
fn overview() -> String {
    let mut lines = Vec::new();
    for (group, commands, purpose) in GROUPS {
        lines.push(format!("{group:<8} {}", commands.join(", ")));
        lines.push(format!("{:<8}   {purpose}", ""));
    }
    lines.push(String::new());
    lines.push(
        "attnscope COMMAND --help has its options, attnscope open --help the screen's".to_owned(),
    );
    lines.join("\n")
}

/// Groups with the commands of each.
fn short_overview() -> String {
    let lines = GROUPS
        .iter()
        .map(|(group, commands, _)| format!("{group:<8} {}", commands.join(", ")));
    let lines: Vec<String> = lines.collect();
    format!("{}\n\n--help says what each is for", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_unique_flag_names() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_visible_command_is_in_one_group_and_has_an_example_that_parses() {
        let described = described();
        let visible = described.get_subcommands().filter(|own| !own.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, all, _)| all.iter().copied())
            .collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
        for (name, line) in EXAMPLES {
            assert!(
                described
                    .get_subcommands()
                    .any(|own| own.get_name() == *name),
                "{name}"
            );
            let line = line.split(" > ").next().unwrap_or(line);
            let mut quoted = false;
            let words = line.split(|c: char| {
                quoted ^= c == '"';
                c == '"' || (c == ' ' && !quoted)
            });
            let words = words.filter(|word| !word.is_empty());
            command()
                .try_get_matches_from(words)
                .unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        let missing: Vec<&&str> = grouped
            .iter()
            .filter(|name| !EXAMPLES.iter().any(|(known, _)| known == *name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_programs_own_help_fits_one_screen() {
        let mut program = command();
        for text in [
            program.render_help().to_string(),
            program.render_long_help().to_string(),
        ] {
            let lines: Vec<&str> = text.trim_end().lines().collect();
            assert!(lines.len() < 24, "{} lines:\n{text}", lines.len());
            assert!(
                lines.iter().all(|line| line.chars().count() <= 80),
                "{text}"
            );
        }
        assert_ne!(
            program.render_help().to_string(),
            program.render_long_help().to_string()
        );
    }
}
