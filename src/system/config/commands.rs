//! Commands of the settings: a name, a command line in words, and what stands in for places on the screen.

use toml::de::{DeTable, DeValue};

use super::read::File;
use super::typed::kind;
use super::value::Origin;
use attnscope_checkpoint::nearest::did_you_mean;

/// Section of the commands.
pub(super) const COMMANDS: &str = "commands";

/// What a word of a command line can stand for.
pub const PLACEHOLDERS: [&str; 5] = ["checkpoint", "layer", "head", "token", "text"];

/// Keys of a command that has a section of its own.
const KNOWN: [&str; 4] = ["run", "key", "about", "terminal"];

/// Programs that read a script from the word after `-c`.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// A command that the user's settings add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub name: String,
    /// The program and its arguments, with placeholders.
    pub words: Vec<String>,
    pub key: Option<String>,
    /// What it does, in the user's words; empty if they gave none.
    pub about: String,
    /// Whether it gets the terminal, as an editor does, or runs in the background.
    pub has_terminal: bool,
    pub origin: Origin,
}

impl Command {
    /// The program and its arguments, with values in place of placeholders. A value never becomes several words.
    ///
    /// # Errors
    /// The first value that there is none of; the error of `value` says why.
    pub fn filled(
        &self,
        value: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Vec<String>, String> {
        let word = |word: &String| -> Result<String, String> {
            let mut text = String::new();
            for piece in pieces(word) {
                match piece {
                    Piece::Text(part) => text.push_str(part),
                    Piece::Placeholder(name) => text.push_str(&value(name)?),
                }
            }
            Ok(text)
        };
        self.words.iter().map(word).collect()
    }
}

/// A part of a word.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Cuts a word at `{name}`. Doubled braces stand for themselves, and so do braces around anything but a name.
fn pieces(word: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut begun) = (word, 0);
    let mut at = 0;
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("{{") || here.starts_with("}}") {
            pieces.push(Piece::Text(&rest[begun..=at]));
            (rest, begun, at) = (&rest[at + 2..], 0, 0);
            continue;
        }
        let inside = here
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        if let Some((name, after)) = inside.filter(|(name, _)| is_name(name)) {
            pieces.push(Piece::Text(&rest[begun..at]));
            pieces.push(Piece::Placeholder(name));
            (rest, begun, at) = (after, 0, 0);
            continue;
        }
        at += here.chars().next().map_or(1, char::len_utf8);
    }
    pieces.push(Piece::Text(&rest[begun..]));
    pieces.retain(|piece| *piece != Piece::Text(""));
    pieces
}

/// The placeholders of a word.
fn placeholders(word: &str) -> Vec<&str> {
    let names = pieces(word).into_iter().map(|piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Text(_) => None,
    });
    names.flatten().collect()
}

/// Splits a command line into words as a shell does, without expanding anything.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return Err(format!("the quote {c} is not closed")),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.extend(letters.next()),
                        Some(inside) => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// What is wrong with the words of a command.
fn problem_of(words: &[String]) -> Option<String> {
    let Some(program) = words.first().filter(|program| !program.is_empty()) else {
        return Some("expected a program and its arguments, found nothing".to_owned());
    };
    for name in words.iter().flat_map(|word| placeholders(word)) {
        if !PLACEHOLDERS.contains(&name) {
            let meant = did_you_mean(name, PLACEHOLDERS);
            return Some(format!(
                "{{{name}}} is not known{meant}; known: {}; {{{{{name}}}}} stands for itself",
                PLACEHOLDERS.map(|known| format!("{{{known}}}")).join(" ")
            ));
        }
    }
    if let Some(name) = placeholders(program).first() {
        return Some(format!("{{{name}}} cannot be the program"));
    }
    let base = program.rsplit('/').next().unwrap_or(program);
    let script = words.get(2).filter(|_| {
        let takes_script =
            |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
        SHELLS.contains(&base) && words.get(1).is_some_and(takes_script)
    });
    // A text could hold what the shell would run.
    let inside = script.and_then(|script| placeholders(script).first().copied().map(str::to_owned));
    inside.map(|name| {
        format!(
            "{{{name}}} inside a script would be read as part of it; hand it over instead: {base} -c '… \"$1\" …' {base} {{{name}}}"
        )
    })
}

impl File<'_> {
    /// Reads the commands. Their keys are checked by the screen, which knows the others.
    pub(super) fn take_commands(&mut self, all: &DeTable<'_>) {
        for (name, value) in all {
            let at = name.span().start;
            let name = name.get_ref().to_string();
            match self.command(&name, at, value.get_ref()) {
                Ok(command) => self.config.commands.push(command),
                Err((at, e)) => self.problem(at, &format!("{COMMANDS}.{name}{e}")),
            }
        }
        // A table has no order of its own: theirs is that of the file.
        let line = |command: &Command| match command.origin {
            Origin::File(_, line) => line,
            _ => 0,
        };
        self.config.commands.sort_by_key(line);
    }

    fn command(
        &self,
        name: &str,
        at: usize,
        value: &DeValue<'_>,
    ) -> Result<Command, (usize, String)> {
        let mut command = Command {
            name: name.to_owned(),
            words: Vec::new(),
            key: None,
            about: String::new(),
            has_terminal: false,
            origin: self.origin(at),
        };
        let DeValue::Table(fields) = value else {
            command.words = words_of(value).map_err(|e| (at, format!(": {e}")))?;
            return Ok(command);
        };
        for (field, value) in fields {
            let at = field.span().start;
            let (field, value) = (field.get_ref().as_ref(), value.get_ref());
            let wrong = |expected: &str| {
                let found = kind(value);
                Err((at, format!(".{field}: expected {expected}, found {found}")))
            };
            match (field, value) {
                ("run", _) => {
                    command.words = words_of(value).map_err(|e| (at, format!(".run: {e}")))?;
                }
                ("key", DeValue::String(key)) => command.key = Some(key.to_string()),
                ("key", _) => return wrong("a key"),
                ("about", DeValue::String(about)) => command.about = about.to_string(),
                ("about", _) => return wrong("a text"),
                ("terminal", DeValue::Boolean(has)) => command.has_terminal = *has,
                ("terminal", _) => return wrong("true or false"),
                _ => {
                    let meant = did_you_mean(field, KNOWN);
                    let known = KNOWN.join(", ");
                    return Err((at, format!(".{field} is not known{meant}; known: {known}")));
                }
            }
        }
        if command.words.is_empty() {
            return Err((at, ": expected run = \"a command line\"".to_owned()));
        }
        Ok(command)
    }
}

/// The words of a command line, given as a text or as a list.
fn words_of(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let expected = |value: &DeValue<'_>| {
        let found = kind(value);
        format!("expected a command line or a list of words, found {found}")
    };
    let words = match value {
        DeValue::String(line) => split(line)?,
        DeValue::Array(words) => {
            let word = |word: &toml::Spanned<DeValue<'_>>| match word.get_ref() {
                DeValue::String(word) => Ok(word.to_string()),
                other => Err(format!("{} among its words", expected(other))),
            };
            words.iter().map(word).collect::<Result<_, _>>()?
        }
        other => return Err(expected(other)),
    };
    problem_of(&words).map_or(Ok(words), Err)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn of(text: &str) -> Config {
        Config::of_text("c.toml".as_ref(), text)
    }

    #[test]
    fn a_command_is_split_into_words_and_values_stay_words() {
        let config = of(
            "[commands]\nlog = \"git -C {checkpoint} log '--format=%h %s'\"\n\n[commands.say]\nrun = [\"printf\", \"{{x}}%s\", \"{text}\"]\nkey = \"Alt-p\"\nterminal = true\nabout = \"prints\"\n",
        );
        assert_eq!(config.problems, Vec::<String>::new());
        let [log, say] = config.commands.as_slice() else {
            panic!("{:?}", config.commands)
        };
        let value = |name: &str| match name {
            "checkpoint" => Ok("my runs/a".to_owned()),
            "text" => Ok("$(rm -rf ~) {layer}".to_owned()),
            _ => Err("none".to_owned()),
        };
        let words = ["git", "-C", "my runs/a", "log", "--format=%h %s"];
        assert_eq!(log.filled(value), Ok(words.map(str::to_owned).to_vec()));
        let words = ["printf", "{x}%s", "$(rm -rf ~) {layer}"];
        assert_eq!(say.filled(value), Ok(words.map(str::to_owned).to_vec()));
        assert!(say.has_terminal && !log.has_terminal);
        assert_eq!(
            (say.key.as_deref(), say.about.as_str()),
            (Some("Alt-p"), "prints")
        );
    }

    #[test]
    fn what_is_wrong_with_a_command_is_said_at_its_line() {
        for (line, said) in [
            ("a = \"\"", &["c.toml:2", "commands.a", "a program"][..]),
            ("a = 3", &["c.toml:2", "a whole number"]),
            ("a = \"x 'y\"", &["c.toml:2", "the quote ' is not closed"]),
            (
                "a = \"x {txt}\"",
                &["c.toml:2", "{txt}", "did you mean text?", "{{txt}}"],
            ),
            (
                "a = \"{text} x\"",
                &["c.toml:2", "{text} cannot be the program"],
            ),
            (
                "a = \"sh -c 'echo {token}'\"",
                &["c.toml:2", "{token} inside a script", "sh {token}"],
            ),
            (
                "a = \"/bin/bash -ec 'echo {text}'\"",
                &["{text} inside a script"],
            ),
            ("a = { key = \"y\" }", &["c.toml:2", "run ="]),
            (
                "a = { run = \"x\", keys = \"y\" }",
                &["a.keys", "did you mean key?"],
            ),
            (
                "a = { run = \"x\", terminal = 1 }",
                &["a.terminal", "true or false"],
            ),
            ("a = [\"x\", 1]", &["commands.a", "a list of words"]),
        ] {
            let config = of(&format!("[commands]\n{line}\n"));
            let [problem] = config.problems.as_slice() else {
                panic!("{line}: {:?}", config.problems)
            };
            for part in said {
                assert!(problem.contains(part), "{line}: {problem} has no {part}");
            }
        }
        // Values after the script are words, and braces of other languages are theirs.
        for line in [
            "a = \"sh -c 'echo $1' sh {text}\"",
            "a = \"awk '{print $1}' {checkpoint}\"",
        ] {
            let config = of(&format!("[commands]\n{line}\n"));
            assert_eq!(config.problems, Vec::<String>::new(), "{line}");
        }
    }
}
