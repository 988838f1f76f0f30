//! Every panel as a person sees it, at the smallest size and at a usual one; and what keys and clicks do to it.

use attnscope_checkpoint::Opening;
use attnscope_prompt::{Request, Target};
use attnscope_screen::{Axis, Depth, Panel};
use attnscope_spec::Stack;
use crossterm::event::KeyCode;
use testing::screen::Screen;

/// Words of the demo's vocabulary, said twice.
const TEXT: &str =
    "the old king gave a red apple to his horse . the old king gave a red apple to his horse .";

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::Truecolor)
}

fn shows(name: &str, (width, height): (u16, u16), screen: &mut Screen) {
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen.picture());
}

#[test]
fn overview() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.typed("]]]]]]]");
        shows("overview", size, &mut screen);
    }
}

#[test]
fn head() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.typed("]]]]]]]");
        screen.key(KeyCode::Enter);
        shows("head", size, &mut screen);
        screen.typed("sh");
        shows("head_scores", size, &mut screen);
    }
}

#[test]
fn scores() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.go(Panel::Scores);
        shows("scores", size, &mut screen);
    }
}

#[test]
fn checks() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.go(Panel::Checks);
        shows("checks", size, &mut screen);
        screen.typed("p");
        shows("checks_probed", size, &mut screen);
        screen.typed("i");
        shows("checks_page", size, &mut screen);
    }
}

#[test]
fn a_broken_model_shows_its_findings_and_enter_goes_to_their_place() {
    for size in SIZES {
        let path = testing::root().join("fixtures/captured/dropped_mask.safetensors");
        let request = attnscope_prompt::Request::ids(vec![0]);
        let mut screen = Screen::open(Some(path), request, size, Depth::Truecolor);
        shows("trace_overview", size, &mut screen);
        screen.go(Panel::Checks);
        shows("trace_checks", size, &mut screen);
        screen.key(KeyCode::Enter);
        assert_eq!(
            (
                screen.app.selection.layer_idx,
                screen.app.selection.head_idx
            ),
            (1, 1)
        );
        shows("trace_head", size, &mut screen);
    }
}

#[test]
fn tokens() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.typed("]]]]]]]");
        screen.go(Panel::Tokens);
        shows("tokens", size, &mut screen);
    }
}

#[test]
fn model() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.go(Panel::Model);
        screen.key(KeyCode::Enter);
        shows("model", size, &mut screen);
    }
}

/// One layer has all heads there are: those before and behind it convolve, keep a state, or do not mix tokens at all.
#[test]
fn layers_that_do_not_attend_are_passed_over() {
    for (name, layer_idx) in [("lfm2", 1), ("qwen3_next", 1), ("nemotron_h", 2)] {
        let path = testing::root().join(format!("fixtures/oracle/{name}/model"));
        let tokens = Request::ids((5..13).collect());
        let mut screen = Screen::open(Some(path), tokens, (120, 40), Depth::Truecolor);
        for panel in Panel::ALL
            .into_iter()
            .filter(|panel| *panel != Panel::Story)
        {
            screen.go(panel);
            for key in [KeyCode::Down, KeyCode::Up, KeyCode::Up, KeyCode::Home] {
                screen.key(key);
                let at = screen.app.selection.layer_idx;
                assert_eq!(at, layer_idx, "{name} {panel:?}");
            }
            assert!(!screen.text().is_empty());
        }
        let report = screen.app.scene().layer();
        assert_eq!(
            report.map(|layer| layer.layer_idx),
            Some(layer_idx),
            "{name}"
        );
        screen.go(Panel::Overview);
        let text = screen.text();
        assert!(
            text.contains("no heads: "),
            "{name} names what mixes tokens:\n{text}"
        );
        assert!(!text.contains("has not run yet"), "{name}:\n{text}");
    }
}

/// The encoder of this decoder has no layers: rows are given. Two of its four layers only look at them.
#[test]
fn a_decoder_of_given_rows_shows_the_grids_that_it_has() {
    let case = testing::root().join("fixtures/oracle/blt_local_decoder");
    let file = |name: &str| case.join(name).to_string_lossy().into_owned();
    let rows = Request {
        target: Target::Text(file("target_rows.npy")),
        ..Request::text(file("rows.npy"))
    };
    let path = Some(case.join("model"));
    let mut screen = Screen::open(path, rows, (120, 40), Depth::Truecolor);
    screen.go(Panel::Overview);
    let at = screen.app.selection;
    assert_eq!((at.stack, at.layer_idx), (Stack::Decoder, 1));
    let text = screen.text();
    assert!(!text.contains("has not run yet"), "{text}");
    assert!(!text.contains("encoder ·"), "{text}");
    for why in ["cross-attention alone", "no cross-attention"] {
        assert_eq!(
            text.matches(&format!("no heads: {why}")).count(),
            2,
            "{text}"
        );
    }
}

#[test]
fn a_map_too_long_to_hold_shows_single_cells_where_one_zooms_in() {
    let path = testing::root().join("fixtures/oracle/llama/model");
    let opening = Opening {
        set: vec![("n_ctx".to_owned(), "8192".to_owned())],
        ..Opening::from(Some(path))
    };
    let n = 4200;
    let tokens = (0..n).map(|i| (i * 7 + i / 50) % 90 + 3).collect();
    let mut screen = Screen::open(opening, Request::ids(tokens), (120, 40), Depth::Truecolor);
    screen.key(KeyCode::Enter);
    assert_eq!(
        screen.app.scene().pooling(),
        2,
        "longer than what is held whole"
    );
    // To one pooled cell a pixel, and one step further.
    while screen.app.scene().pooling() > 1 {
        screen.typed("+");
    }
    assert!(screen.app.scene().shows_part());
    let shows_crosshair = |screen: &Screen| {
        let at = screen.app.selection;
        let (query, key) = (at.query_idx..at.query_idx + 1, at.key_idx..at.key_idx + 1);
        screen.app.scene().part_with(&query, &key).is_some()
    };
    assert!(shows_crosshair(&screen));
    shows("long_head", (120, 40), &mut screen);
    // Far away, another part is computed.
    let before = screen.app.selection.query_idx;
    (0..40).for_each(|_| screen.key(KeyCode::PageUp));
    assert_ne!(screen.app.selection.query_idx, before);
    assert!(shows_crosshair(&screen));
    screen.typed("-");
    assert_eq!(screen.app.scene().pooling(), 2, "back to pooled cells");
}

/// A model with an encoder: two texts, three grids.
fn encoder_decoder(size: (u16, u16)) -> Screen {
    let path = testing::root();
    let request = Request {
        target: Target::Ids(vec![0, 5, 9, 7, 5]),
        ..Request::ids(vec![3, 4, 5, 6, 7, 8, 9, 4, 5])
    };
    let path = path.join("fixtures/oracle/t5_v11/model");
    Screen::open(Some(path), request, size, Depth::Truecolor)
}

#[test]
fn a_model_with_an_encoder_shows_three_grids_and_maps_between_two_texts() {
    for size in SIZES {
        let mut screen = encoder_decoder(size);
        screen.typed("ooj");
        assert_eq!(screen.app.selection.stack, Stack::Cross);
        shows("cross_overview", size, &mut screen);
        screen.key(KeyCode::Enter);
        assert_eq!(screen.app.scene().n_along(Axis::Query), 5);
        assert_eq!(screen.app.scene().n_along(Axis::Key), 9);
        shows("cross_head", size, &mut screen);
        screen.go(Panel::Tokens);
        shows("cross_tokens", size, &mut screen);
    }
}

#[test]
fn what_lies_over_the_panels() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.typed("?");
        shows("help", size, &mut screen);
        screen.key(KeyCode::Esc);
        screen.typed("/L1h");
        shows("find", size, &mut screen);
        screen.key(KeyCode::Esc);
        screen.typed("e");
        shows("edit", size, &mut screen);
    }
}

#[test]
fn a_terminal_without_colours_shows_glyphs() {
    let mut screen = Screen::open(None, Request::text(TEXT), (80, 24), Depth::None);
    shows("overview_no_colour", (80, 24), &mut screen);
    screen.typed("]]]]]]]");
    screen.key(KeyCode::Enter);
    shows("head_no_colour", (80, 24), &mut screen);
    let buffer = screen.frame();
    let is_plain = |x: u16, y: u16| {
        let style = buffer[(x, y)].style();
        [style.fg, style.bg]
            .into_iter()
            .flatten()
            .all(|colour| colour == ratatui::style::Color::Reset)
    };
    assert!((0..24).all(|y| (0..80).all(|x| is_plain(x, y))));
}

#[test]
fn a_small_terminal_says_what_it_needs_and_a_larger_one_goes_on() {
    let mut screen = demo((120, 40));
    screen.go(Panel::Head);
    for (width, height) in [(47, 24), (80, 15), (20, 5), (1, 1)] {
        screen.resize(width, height);
        let text = screen.text();
        let said: String = text.split_whitespace().collect();
        let whole = format!("attnscopeneeds48×16,thisterminalis{width}×{height}");
        // As much of the sentence as there is room for, and nothing of the panel.
        let is_said = said.starts_with(&whole) || !said.is_empty() && whole.starts_with(&said);
        assert!(is_said, "{width}×{height}: {said}");
    }
    screen.resize(200, 60);
    assert_eq!(screen.app.panel, Panel::Head);
    assert!(screen.text().contains("query"));
}

#[test]
fn every_panel_survives_every_size() {
    let mut screen = demo((80, 24));
    for panel in Panel::ALL {
        screen.resize(80, 24);
        screen.go(panel);
        for (width, height) in [
            (80, 24),
            (81, 25),
            (97, 31),
            (133, 24),
            (80, 70),
            (300, 100),
        ] {
            screen.resize(width, height);
            assert!(!screen.text().is_empty());
        }
    }
}

#[test]
fn tabs_cells_and_tokens_answer_to_the_mouse() {
    let mut screen = demo((120, 40));
    let place_of = |screen: &mut Screen, words: &str| -> (u16, u16) {
        let text = screen.text();
        let (row, line) = text
            .lines()
            .enumerate()
            .find(|(_, line)| line.contains(words))
            .unwrap_or_else(|| panic!("{words} is not on screen:\n{text}"));
        let at = line.find(words).expect("found above");
        (line[..at].chars().count() as u16, row as u16)
    };
    let (column, row) = place_of(&mut screen, "4 Tokens");
    screen.click(column, row);
    assert_eq!(screen.app.panel, Panel::Tokens);
    let (column, row) = place_of(&mut screen, "king gave");
    screen.click(column + 5, row);
    assert_eq!(
        screen
            .app
            .scene()
            .token(Axis::Query, screen.app.selection.query_idx),
        "gave"
    );
    screen.go(Panel::Overview);
    let (column, row) = place_of(&mut screen, " L1 ");
    screen.click(column + 10, row);
    assert_eq!(screen.app.selection.layer_idx, 1);
    let (column, row) = place_of(&mut screen, "L0H2  ");
    screen.click(column, row);
    assert_eq!(
        (
            screen.app.selection.layer_idx,
            screen.app.selection.head_idx
        ),
        (0, 2)
    );
}

#[test]
fn one_selection_is_moved_in_all_panels() {
    let mut screen = demo((120, 40));
    screen.go(Panel::Head);
    screen.typed("g");
    screen.key(KeyCode::End);
    let n_keys = screen.app.scene().n_along(Axis::Key);
    assert_eq!(screen.app.selection.key_idx, n_keys - 1);
    screen.typed("<");
    assert_eq!(screen.app.selection.key_idx, n_keys - 11);
    screen.key(KeyCode::Home);
    screen.typed("jjjll");
    assert_eq!(
        (screen.app.selection.query_idx, screen.app.selection.key_idx),
        (3, 2)
    );
    screen.go(Panel::Tokens);
    screen.key(KeyCode::Right);
    assert_eq!(screen.app.selection.query_idx, 4);
    screen.typed("}");
    assert_eq!(screen.app.selection.layer_idx, 1);
    screen.key(KeyCode::Esc);
    assert_eq!(screen.app.panel, Panel::Head);
}

#[test]
fn the_text_is_edited_in_place_and_run_again() {
    let mut screen = demo((120, 40));
    let n_before = screen.app.scene().n_along(Axis::Query);
    screen.typed("e horse");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.scene().n_along(Axis::Query), n_before + 1);
    assert_eq!(screen.app.scene().token(Axis::Query, n_before), "horse");
}

#[test]
fn the_finder_goes_to_heads_tokens_and_tensors() {
    let mut screen = demo((120, 40));
    screen.typed("/L1H2");
    screen.key(KeyCode::Enter);
    assert_eq!(
        (
            screen.app.selection.layer_idx,
            screen.app.selection.head_idx
        ),
        (1, 2)
    );
    screen.typed("/wpe");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.panel, Panel::Model);
    assert!(screen.text().contains("wpe.weight"));
}

#[test]
fn q_quits_except_in_a_text_field_where_control_c_does() {
    use attnscope_screen::Msg;
    use crossterm::event::{KeyEvent, KeyModifiers};
    let mut screen = demo((80, 24));
    screen.typed("eq");
    assert!(!screen.app.is_over, "q is a letter here");
    screen.key(KeyCode::Esc);
    screen.typed("/q");
    assert!(!screen.app.is_over, "and here");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    screen.send(Msg::Key(interrupt));
    assert!(screen.app.is_over);
    let mut screen = demo((80, 24));
    screen.typed("q");
    assert!(screen.app.is_over);
}

#[test]
fn types_of_heads_are_those_that_there_are_and_filter_all_that_is_shown() {
    let mut screen = demo((120, 40));
    let types = screen.app.scene().head_types();
    assert!(!types.is_empty());
    for (kind, n) in types {
        screen.typed("t");
        let plural = if n == 1 { "" } else { "s" };
        let text = screen.text();
        let title = format!("{n} {} head{plural}", kind.title());
        assert!(text.contains(&title), "no {title} in\n{text}");
        let app = &screen.app;
        let layer = app.scene().layer().expect("a layer");
        assert_eq!(layer.heads[app.selection.head_idx].kind, Some(kind));
        // The ranking has the heads of the type, and no others.
        let ranking = text.lines().skip_while(|line| !line.contains("heads by"));
        let ranking: Vec<&str> = ranking.take_while(|line| !line.starts_with('└')).collect();
        let n_ranked = ranking.join("\n").matches(" L").count();
        assert!(
            n_ranked >= n && n_ranked <= n + 1,
            "{n_ranked} of {n}:\n{text}"
        );
    }
    screen.typed("t");
    assert_eq!(screen.app.shown_type, None);
}

#[test]
fn the_list_of_statistics_is_walked_up_and_down() {
    let mut screen = demo((120, 40));
    screen.go(Panel::Scores);
    screen.typed("jjj");
    assert_eq!(
        (screen.app.statistic_idx, screen.app.selection.layer_idx),
        (3, 0)
    );
    screen.typed("k}");
    assert_eq!(
        (screen.app.statistic_idx, screen.app.selection.layer_idx),
        (2, 1)
    );
}
