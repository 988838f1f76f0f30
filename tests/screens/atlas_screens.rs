//! The atlas: every head as a small map, its keys, its mouse, and what it leaves out.

use attnscope_prompt::{Request, Target};
use attnscope_screen::{Depth, Export, Panel};
use attnscope_spec::Stack;
use crossterm::event::KeyCode;
use testing::screen::Screen;

/// Words of the demo's vocabulary, said twice.
const TEXT: &str =
    "the old king gave a red apple to his horse . the old king gave a red apple to his horse .";

fn demo(size: (u16, u16), depth: Depth) -> Screen {
    Screen::open(None, Request::text(TEXT), size, depth)
}

fn oracle(name: &str, request: Request, size: (u16, u16)) -> Screen {
    let path = testing::root().join(format!("fixtures/oracle/{name}/model"));
    Screen::open(Some(path), request, size, Depth::Truecolor)
}

fn shows(name: &str, (width, height): (u16, u16), screen: &mut Screen) {
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen.picture());
}

#[test]
fn plus_goes_from_the_model_to_a_layer_to_a_head_and_minus_back() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = demo(size, Depth::Truecolor);
        screen.typed("]]]]]+");
        shows("atlas_layer", size, &mut screen);
        assert!(!screen.text().contains(" L0 "), "one layer alone");
        screen.typed("-");
        assert!(screen.text().contains(" L0 "), "all layers");
        screen.typed("++");
        assert_eq!(screen.app.panel, Panel::Head);
        let at = screen.app.selection;
        assert_eq!((at.layer_idx, at.head_idx), (1, 1));
    }
}

#[test]
fn the_heads_of_one_layer_are_walked_by_rows() {
    let tokens = Request::ids((3..40).collect());
    let mut screen = oracle("gpt2", tokens, (80, 24));
    screen.typed("+");
    let n_heads = screen.app.scene().n_heads();
    let mut seen = vec![screen.app.selection.head_idx];
    while screen.app.selection.layer_idx == 0 && seen.len() <= n_heads {
        screen.key(KeyCode::Down);
        seen.push(screen.app.selection.head_idx);
    }
    assert_eq!(
        screen.app.selection.layer_idx, 1,
        "past the last row: {seen:?}"
    );
}

#[test]
fn numbers_and_maps_are_turned_by_one_key_and_bookmarks_keep_them() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    assert!(screen.text().contains("maps 0"), "the atlas is shown first");
    screen.typed("a");
    assert!(!screen.text().contains("maps 0"));
    assert!(screen.app.look().numbers);
    screen.typed("ba");
    assert!(screen.text().contains("maps 0"));
    screen.typed("'");
    screen.key(KeyCode::Enter);
    assert!(screen.app.look().numbers, "as it was at the bookmark");
}

#[test]
fn the_second_click_on_a_map_opens_the_head() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    let text = screen.text();
    let (row, line) = text
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains(" L1 "))
        .expect("the second layer");
    let at = line.find("H2").expect("the third head");
    let (column, row) = (line[..at].chars().count() as u16, row as u16 + 2);
    screen.click(column, row);
    let at = screen.app.selection;
    assert_eq!((at.layer_idx, at.head_idx), (1, 2));
    assert_eq!(screen.app.panel, Panel::Overview);
    screen.click(column, row);
    assert_eq!(screen.app.panel, Panel::Head);
}

#[test]
fn without_colours_maps_and_strips_are_glyphs() {
    let mut screen = demo((80, 24), Depth::None);
    let buffer = screen.frame();
    let shades = buffer
        .content
        .iter()
        .filter(|cell| "░▒▓█".contains(cell.symbol()));
    assert!(shades.count() > 100);
    let is_plain = |style: ratatui::style::Style| {
        [style.fg, style.bg]
            .into_iter()
            .flatten()
            .all(|colour| colour == ratatui::style::Color::Reset)
    };
    assert!(buffer.content.iter().all(|cell| is_plain(cell.style())));
}

#[test]
fn keys_that_are_masked_are_blank() {
    let mut screen = demo((80, 24), Depth::None);
    let export = Export::of(&screen.app, false).expect("an export");
    let pixels = testing::tables::part(&export.csv, "pixel");
    assert!(!pixels.is_empty());
    for pixel in &pixels {
        assert!(pixel.index("key") <= pixel.index("query_last"), "{pixel:?}");
    }
    screen.typed("a");
    let export = Export::of(&screen.app, false).expect("an export");
    assert!(
        testing::tables::part(&export.csv, "pixel").is_empty(),
        "no map is shown"
    );
}

#[test]
fn a_change_of_every_map_is_shown_around_0() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    screen.typed("wscale=inv_d");
    screen.key(KeyCode::Enter);
    screen.app.show_side(attnscope_screen::Shows::Difference);
    shows("atlas_difference", (120, 40), &mut screen);
    assert!(screen.text().contains("√ of the change"));
    let export = Export::of(&screen.app, false).expect("an export");
    let pixels = testing::tables::part(&export.csv, "pixel");
    let n_of = |side: &str| {
        pixels
            .iter()
            .filter(|pixel| pixel.text("side") == side)
            .count()
    };
    assert!(n_of("before") > 100 && n_of("before") == n_of("after"));
}

#[test]
fn three_grids_are_shown_together_or_one_after_the_other() {
    let request = Request {
        target: Target::Ids(vec![0, 5, 9, 7, 5]),
        ..Request::ids(vec![3, 4, 5, 6, 7, 8, 9, 4, 5])
    };
    let mut screen = oracle("t5_v11", request.clone(), (120, 40));
    let all = screen.text();
    assert!(all.contains("encoder ·") && all.contains("decoder ·") && all.contains("cross ·"));
    let mut screen = oracle("t5_v11", request, (80, 24));
    assert!(screen.text().contains("encoder ·") && !screen.text().contains("decoder ·"));
    screen.typed("oo");
    assert_eq!(screen.app.selection.stack, Stack::Cross);
    assert!(screen.text().contains("cross ·") && !screen.text().contains("encoder ·"));
}

#[test]
fn one_sentence_says_what_was_found() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    screen.app.asks_by_itself = false;
    let text = screen.text();
    let sentence = text.lines().nth(2).expect("a line below the tabs");
    assert!(sentence.contains("4 induction heads in L1"), "{sentence}");
    assert!(sentence.contains("nothing wrong in "), "{sentence}");
    let path = testing::root().join("fixtures/captured/dropped_mask.safetensors");
    let broken = Request::ids(vec![0]);
    let mut screen = Screen::open(Some(path), broken, (120, 40), Depth::Truecolor);
    let text = screen.text();
    let sentence = text.lines().nth(2).expect("a line below the tabs");
    assert!(
        sentence.contains("error") && sentence.contains('✖'),
        "{sentence}"
    );
}
