//! What the model writes on screen: token by token, what was likely beside each, and what every head looked at.

use attnscope::bundles;
use attnscope_checkpoint::Opening;
use attnscope_prompt::Request;
use attnscope_screen::{Depth, Overlay, Panel};
use attnscope_spec::Stack;
use crossterm::event::KeyCode;
use testing::screen::Screen;

const TEXT: &str = "one cold morning the old king gave a red apple . one cold morning the";

fn written(size: (u16, u16)) -> Screen {
    let mut screen = Screen::open(None, Request::text(TEXT), size, Depth::Truecolor);
    screen.typed("G");
    // What is written runs as a text of its own when it is over.
    let run = screen.app.runs.a.as_ref().expect("a run");
    assert_eq!(run.prompt.tokens.len(), 15 + 64);
    screen
}

#[test]
fn pictures() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut screen = written((width, height));
        insta::assert_snapshot!(format!("writing_{width}x{height}"), screen.picture());
        (0..60).for_each(|_| screen.key(KeyCode::Left));
        insta::assert_snapshot!(format!("writing_walked_{width}x{height}"), screen.picture());
    }
}

#[test]
fn a_token_that_is_walked_back_to_shows_the_row_that_the_whole_text_has() {
    let mut screen = written((120, 40));
    screen.typed("}]]]");
    (0..1000).for_each(|_| screen.key(KeyCode::Left));
    let text = screen.text();
    assert!(
        text.contains("token 1 ") && text.contains("looked at"),
        "{text}"
    );
    let shown = {
        let (_, row) = text.split_once("looked at").expect("the row");
        let line = row.lines().nth(1).expect("its first key").to_owned();
        let numbers = line.split_whitespace().filter_map(|word| {
            let word = word.trim_end_matches('│');
            word.parse::<f64>().ok()
        });
        let mut numbers = numbers;
        numbers.next_back().expect("a probability")
    };
    let first = screen
        .app
        .runs
        .a
        .as_ref()
        .expect("a run")
        .prompt
        .tokens
        .len();
    screen.key(KeyCode::Enter);
    assert!(screen.app.overlay.is_none());
    let query = screen.app.selection.query_idx;
    assert!(query > 0 && query < first);
    screen.go(Panel::Head);
    screen.wait_for(|app| app.scene().shown_detail().is_some());
    let detail = screen.app.scene().shown_detail().expect("a head").clone();
    let at = screen.app.selection;
    assert_eq!((at.stack, at.layer_idx, at.head_idx), (Stack::Only, 1, 3));
    let row = detail.pattern.finest();
    let most = (0..row.n_cols)
        .map(|key| row.at(query, key))
        .fold(0.0, f32::max);
    assert!((f64::from(most) - shown).abs() < 1e-3, "{most} {shown}");
}

#[test]
fn the_text_that_was_written_is_written_on_and_left() {
    let mut screen = written((100, 30));
    let n = |screen: &Screen| {
        screen
            .app
            .runs
            .a
            .as_ref()
            .expect("a run")
            .prompt
            .tokens
            .len()
    };
    let n_before = n(&screen);
    screen.typed("G");
    let n_after = n(&screen);
    assert!(n_after > n_before, "{n_before} {n_after}");
    let text = screen.text();
    assert!(text.contains("the model writes"), "{text}");
    screen.key(KeyCode::Esc);
    assert!(screen.app.overlay.is_none());
}

#[test]
fn the_degenerate_twin_writes_beside_the_healthy_one() {
    let opening = Opening {
        bundle: bundles::named("degenerate"),
        set: vec![("softmax_axis".to_owned(), "queries".to_owned())],
        ..Opening::default()
    };
    let request = Request::text("the king took a quiet story in the night . a big cat sang");
    let mut screen = Screen::open(opening, request, (120, 40), Depth::Truecolor);
    screen.typed("G");
    insta::assert_snapshot!("writing_twins_120x40", screen.picture());
    let Some(Overlay::Writing(view)) = &screen.app.overlay else {
        panic!("nothing is written");
    };
    let texts: Vec<Vec<&str>> = view
        .sides
        .iter()
        .map(|side| {
            side.tokens
                .iter()
                .map(|token| token.label.as_str())
                .collect()
        })
        .collect();
    assert_eq!(view.sides[0].model, "degenerate");
    assert_eq!(view.sides[1].model, "healthy");
    assert!(texts[0].len() > 5 && texts[0] != texts[1], "{texts:?}");
}
