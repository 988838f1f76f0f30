//! Commands of the settings on screen: their keys, what they are handed, and what is said of how they ended.

use std::path::PathBuf;

use attnscope_prompt::Request;
use attnscope_screen::{Axis, Depth, Effect, Msg, ReadyCommand, Setup};
use attnscope_system::config::Config;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use testing::checkpoint_copy::original;
use testing::screen::Screen;

const SETTINGS: &str = r#"
[commands.look]
run = ["less", "{checkpoint}/config.json"]
key = "Alt-l"
terminal = true

[commands]
say = { run = "printf '%s|' {text} {token} L{layer}H{head}", key = "F5" }
"#;

fn pressed(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) -> Vec<Effect> {
    let key = KeyEvent::new(code, modifiers);
    screen.app.update(Msg::Key(key))
}

fn open(path: Option<PathBuf>, request: Request) -> Screen {
    let mut screen = Screen::open(path, request, (120, 40), Depth::None);
    let config = Config::of_text("c.toml".as_ref(), SETTINGS);
    assert_eq!(config.problems, Vec::<String>::new());
    let setup = Setup::of(&config, |_| None).expect("no clash");
    screen.app.set_up(setup);
    screen
}

fn ready(nth: usize, words: &[&str], has_terminal: bool) -> Effect {
    Effect::Command(ReadyCommand {
        nth,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        has_terminal,
    })
}

#[test]
fn a_command_is_handed_the_place_and_the_text_as_single_words() {
    let text = "the king; $(gave)";
    let mut screen = open(None, Request::text(text));
    screen.typed("j");
    let asked = pressed(&mut screen, KeyCode::F(5), KeyModifiers::NONE);
    let at = screen.app.selection.query_idx;
    let token = screen.app.scene().token(Axis::Query, at);
    assert_eq!(
        asked,
        [ready(1, &["printf", "%s|", text, &token, "L1H0"], false)]
    );
    let last = |screen: &mut Screen| screen.text().lines().last().unwrap_or_default().to_owned();
    assert!(last(&mut screen).contains("say runs"));
    // One at a time, until it has ended.
    assert_eq!(pressed(&mut screen, KeyCode::F(5), KeyModifiers::NONE), []);
    assert!(last(&mut screen).contains("say still runs"));
    screen.send(Msg::Commanded(1, Ok("the king".to_owned())));
    screen.typed("k");
    screen.send(Msg::Commanded(1, Err("printf failed".to_owned())));
    assert!(last(&mut screen).contains("say: printf failed"));
    // The demo is no file.
    assert_eq!(
        pressed(&mut screen, KeyCode::Char('l'), KeyModifiers::ALT),
        []
    );
    let said = last(&mut screen);
    assert!(said.contains("look: there is no {checkpoint}"), "{said}");
}

#[test]
fn commands_stand_in_the_palette_and_in_the_help() {
    let path = original("gpt2");
    let mut screen = open(Some(path.clone()), Request::ids(vec![1, 2, 3]));
    let asked = pressed(&mut screen, KeyCode::Char('l'), KeyModifiers::ALT);
    let file = format!("{}/config.json", path.display());
    assert_eq!(asked, [ready(0, &["less", &file], true)]);
    screen.typed(":printf");
    let text = screen.text();
    assert!(
        text.contains("say ") && text.contains("F5 · run printf"),
        "{text}"
    );
    screen.key(KeyCode::Esc);
    screen.typed("?/commands");
    let text = screen.text();
    assert!(
        text.contains("Alt-l") && text.contains("look: run less"),
        "{text}"
    );
}
