//! Pictures as prompts on screen: the picture of the Tokens panel, the way through its patches, another picture.

use attnscope_checkpoint::Opening;
use attnscope_prompt::{PictureSource, Request, Source};
use attnscope_screen::{Depth, Panel};
use crossterm::event::KeyCode;
use testing::root;
use testing::screen::Screen;

fn opened(case: &str, size: (u16, u16), depth: Depth) -> Screen {
    let opening = Opening {
        sees: true,
        ..Opening::from(Some(
            root().join("fixtures/oracle").join(case).join("model"),
        ))
    };
    let request = Request {
        source: Source::Picture(PictureSource::BuiltIn),
        ..Request::text("")
    };
    let mut screen = Screen::open(opening, request, size, depth);
    screen.go(Panel::Tokens);
    screen
}

#[test]
fn patches_are_half_blocks_with_colours_and_glyphs_without() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = opened("vit", size, Depth::Truecolor);
        let shown = screen.picture();
        assert!(shown.contains("[CLS]") && shown.contains('▀'), "{shown}");
        let mut screen = opened("dinov2_with_registers", size, Depth::Indexed);
        let shown = screen.picture();
        assert!(shown.contains("[reg 4]") && shown.contains('▀'), "{shown}");
        let mut screen = opened("siglip_vision_model", size, Depth::None);
        let shown = screen.picture();
        assert!(!shown.contains('▀') && shown.contains("r1 c1"), "{shown}");
    }
}

#[test]
fn arrows_go_from_patch_to_patch_and_clicks_choose_them() {
    // A class token and 3 × 3 patches.
    let mut screen = opened("vit", (120, 40), Depth::Truecolor);
    let at = |screen: &Screen| screen.app.selection.query_idx;
    assert_eq!(at(&screen), 0);
    let mut seen = Vec::new();
    for key in [
        KeyCode::Down,
        KeyCode::Right,
        KeyCode::Down,
        KeyCode::Down,
        KeyCode::Up,
    ] {
        screen.key(key);
        seen.push(at(&screen));
    }
    assert_eq!(seen, [1, 2, 5, 8, 5]);
    screen.click(3, 4);
    assert_eq!(at(&screen), 1);
    screen.click(3, 3);
    assert_eq!(at(&screen), 0);
    screen.typed("e");
    let photo = root().join("fixtures/formats/pictures/plain.jpg");
    screen.typed(&photo.display().to_string());
    screen.key(KeyCode::Enter);
    let shown = screen.picture();
    assert!(
        !shown.contains("built-in") && shown.contains("3 × 3 patches"),
        "{shown}"
    );
}
