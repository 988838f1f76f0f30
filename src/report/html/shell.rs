//! The frame of every page: its head, a content security policy, the style and the script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::colour::Colours;

/// The only script of a page. A page without it shows the same content.
const SCRIPT: &str = concat!(
    include_str!("page.js"),
    include_str!("steps.js"),
    include_str!("head.js")
);

/// Returns a whole page: one file, which loads nothing.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let style = format!("{}{}", include_str!("style.css"), Colours::new().rules());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "attnscope " (env!("CARGO_PKG_VERSION")) };
                meta http-equiv="Content-Security-Policy" content=(policy(&style));
                title { (title) " · attnscope" }
                style { (PreEscaped(&style)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Allows images inside the page, its style and its script, and nothing else: no name or text in the page can load or run anything.
fn policy(style: &str) -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        source(SCRIPT),
        source(style)
    )
}

/// Names a text by its hash, as a policy does.
fn source(text: &str) -> String {
    format!(
        "sha256-{}",
        STANDARD.encode(Sha256::digest(text.as_bytes()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of the only element of a name.
    fn only<'a>(page: &'a str, element: &str) -> &'a str {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        assert_eq!(page.matches(&open).count(), 1, "{element}");
        let (_, after) = page.split_once(&open).expect("it begins");
        after.split_once(&close).expect("it ends").0
    }

    #[test]
    fn the_policy_has_the_hashes_of_the_style_and_the_script_as_they_stand_in_the_page() {
        let page = page("a title", &html! { p { "text" } });
        for element in ["style", "script"] {
            let source = source(only(&page, element));
            assert!(
                page.contains(&format!("{element}-src '{source}'")),
                "{element}: {source}"
            );
        }
        assert!(!page.contains("unsafe"));
    }

    #[test]
    fn the_script_ends_where_its_element_ends_and_reaches_for_nothing() {
        for absent in ["</", "<!--", "http:", "https:", "eval(", "innerHTML"] {
            assert!(!SCRIPT.contains(absent), "{absent}");
        }
        assert!(SCRIPT.is_ascii(), "the hash is that of any encoding");
    }

    #[test]
    fn a_title_is_text() {
        let page = page("</title><script>alert(1)</script>", &html! {});
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("&lt;/title&gt;"));
    }
}
