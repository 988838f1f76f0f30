//! `attnscope config` and the file of settings: what is in force, where it comes from, and what is said of slips.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A directory with a file of settings.
struct Home(tempfile::TempDir);

impl Home {
    fn with(settings: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(directory.path().join("attnscope")).expect("makes");
        let home = Self(directory);
        std::fs::write(home.file(), settings).expect("writes");
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("attnscope/config.toml")
    }

    fn run(&self, words: &str, variables: &[(&str, &str)]) -> Output {
        Command::new(testing::program())
            .args(words.split(' '))
            .current_dir(testing::root().join("fixtures"))
            .env_remove("ATTNSCOPE_CONFIG")
            .env_remove("NO_COLOR")
            .env("XDG_CONFIG_HOME", self.0.path())
            .envs(variables.iter().copied())
            .output()
            .expect("runs")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The value of a setting in the document, and where it comes from.
fn row(document: &Value, name: &str) -> (Value, String) {
    let rows = document["settings"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == name).expect(name);
    let origin = row["origin"].as_str().expect("a text").to_owned();
    (row["value"].clone(), origin)
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn every_value_says_where_it_comes_from_and_a_flag_comes_first() {
    let home = Home::with(
        "[screen]\ntheme = \"light\"\ncolor = 256\ncolor_map = \"magma\"\n\n[keys]\ncopy = [\"Y\", \"Ctrl-Y\"]\n\n\
         [thresholds.entropy-collapse]\nrelative_entropy = 0.2\n",
    );
    let variables = [("NO_COLOR", "1"), ("ATTNSCOPE_COLOR_MAP", "cividis")];
    let output = home.run("config --format json --theme dark", &variables);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = document(&output);
    let line = |n: usize| format!("{}:{n}", home.file().display());
    for (name, value, origin) in [
        (
            "screen.theme",
            Value::from("dark"),
            "flag: --theme".to_owned(),
        ),
        (
            "screen.color",
            "none".into(),
            "environment: NO_COLOR".to_owned(),
        ),
        (
            "screen.color_map",
            "cividis".into(),
            "environment: ATTNSCOPE_COLOR_MAP".to_owned(),
        ),
        ("screen.mouse", true.into(), "default".to_owned()),
        ("cache.most_mib", 256.into(), "default".to_owned()),
        (
            "thresholds.entropy-collapse.relative_entropy",
            0.2.into(),
            line(10),
        ),
        ("keys.copy", vec!["Y", "Ctrl-Y"].into(), line(7)),
        (
            "keys.quit",
            vec!["q", "Ctrl-C"].into(),
            "default".to_owned(),
        ),
    ] {
        assert_eq!(row(&document, name), (value, origin), "{name}");
    }
    let shown = text(&home.run("config", &[]).stdout);
    assert!(
        shown.contains("screen.theme") && shown.contains(&line(2)),
        "{shown}"
    );
    assert!(
        shown.contains("keys.copy") && !shown.contains("keys.quit"),
        "{shown}"
    );
}

#[test]
fn a_broken_file_ends_commands_and_config_prints_the_rest() {
    let home =
        Home::with("[screen]\ntheem = \"dark\"\ncolor = 16\nmouse = 3\n[keys]\nqiut = \"Q\"\n");
    let output = home.run("tensors healthy", &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    let place = format!("{}:2: screen.theem", home.file().display());
    for part in [place.as_str(), "did you mean theme?", "2 more"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    let output = home.run("config --format json", &[]);
    assert_eq!(output.status.code(), Some(2));
    let document = document(&output);
    assert_eq!(row(&document, "screen.color").0, "16");
    assert_eq!(row(&document, "screen.mouse").0, true);
    let problems = document["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 3, "{problems:?}");
    let all = text(&output.stderr);
    for part in [
        ":4: screen.mouse: expected true or false",
        ":6: keys.qiut",
        "did you mean quit?",
    ] {
        assert!(all.contains(part), "{all}");
    }
    // Whoever completes a command line is not to be told.
    assert_eq!(home.run("completions bash", &[]).status.code(), Some(0));
}

#[test]
fn the_file_is_named_by_a_variable_and_its_path_is_printed() {
    let home = Home::with("[screen]\ntheme = \"nothing\"\n");
    let path = text(&home.run("config path", &[]).stdout);
    assert_eq!(Path::new(path.trim_end()), home.file());
    // An empty name is no file at all.
    let output = home.run("tensors healthy", &[("ATTNSCOPE_CONFIG", "")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = home.run("config path", &[("ATTNSCOPE_CONFIG", "")]);
    assert_eq!(output.status.code(), Some(2));
    let output = home.run("tensors healthy", &[("ATTNSCOPE_CONFIG", "/nowhere.toml")]);
    assert!(text(&output.stderr).contains("/nowhere.toml"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn thresholds_of_the_settings_hold_in_check_and_are_told() {
    let words = "check healthy --tokens 5,9,2,5,9,2,7,7 --select entropy-uniform --format json";
    let of = |home: &Home| {
        let output = home.run(words, &[]);
        let document = document(&output);
        let checks = document["targets"][0]["checks"].clone();
        (checks[0]["status"].clone(), text(&output.stderr))
    };
    let usual = of(&Home::with(""));
    let moved = of(&Home::with(
        "[thresholds.entropy-uniform]\nrelative_entropy = 0.0\n",
    ));
    assert_ne!(usual.0, moved.0, "{} {}", usual.1, moved.1);
    assert!(!usual.1.contains("thresholds:"), "{}", usual.1);
    assert!(
        moved
            .1
            .contains("thresholds: entropy-uniform.relative_entropy = 0"),
        "{}",
        moved.1
    );
}

#[test]
fn keys_are_listed_as_they_are_in_force_and_checked_for_clashes_and_unknown_actions() {
    let home = Home::with("[keys]\nfind = [\"Ctrl-F\", \"F3\"]\n");
    let listed = text(&home.run("keys", &[]).stdout);
    let find = listed.lines().find(|line| line.contains(" find "));
    assert!(
        find.is_some_and(|line| line.starts_with("Ctrl-F F3 ")),
        "{listed}"
    );
    let checked = home.run("keys --check", &[]);
    assert_eq!(checked.status.code(), Some(0));
    let said = text(&checked.stdout);
    assert!(
        said.contains("1 of them changed in ") && said.contains("no clash"),
        "{said}"
    );
    for (settings, expected) in [
        (
            "[keys]\nquit = \"m\"\n",
            "m means pick-statistic and quit in Overview",
        ),
        ("[keys]\nqiut = \"Q\"\n", "did you mean quit?"),
        ("[keys]\nfind = \"Kaboom\"\n", "expected a key"),
        ("[screen]\nthem = 3\n", "them"),
    ] {
        let home = Home::with(settings);
        for words in ["keys --check", "keys"] {
            let output = home.run(words, &[]);
            assert_eq!(output.status.code(), Some(2), "{settings}");
            let said = text(&output.stderr);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains("config.toml:2"), "{said}");
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn commands_and_themes_of_the_settings_are_listed_and_checked() {
    let home = Home::with(
        "[commands]\nsay = { run = \"echo {text}\", key = \"F5\" }\n\n[themes.dusk]\naccent = \"#ff8800\"\n",
    );
    let keys = text(&home.run("keys", &[]).stdout);
    let line = keys.lines().find(|line| line.starts_with("F5"));
    let line = line.expect("the command");
    assert!(
        line.contains("commands.say") && line.contains("run echo {text}"),
        "{line}"
    );
    let output = home.run("config --theme dusk", &[]);
    let listed = text(&output.stdout);
    for part in ["commands.say", "themes.dusk", "auto, accent #ff8800"] {
        assert!(listed.contains(part), "{listed}");
    }
    let theme = listed.lines().find(|line| line.starts_with("screen.theme"));
    assert!(theme.is_some_and(|line| line.contains("dusk")), "{listed}");
    let output = home.run("config --theme dust", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("did you mean dusk?"), "{said}");
    // A key that means something already is found before the screen opens.
    let home = Home::with("[commands]\nsay = { run = \"echo\", key = \"m\" }\n");
    for words in ["keys --check", "tensors healthy"] {
        let output = home.run(words, &[]);
        assert_eq!(output.status.code(), Some(2), "{words}");
        let said = text(&output.stderr);
        assert!(
            said.contains("commands.say.key: m means pick-statistic already"),
            "{words}: {said}"
        );
    }
}
