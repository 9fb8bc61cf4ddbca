//! From a template's text to its pieces.

use crate::verify::json::Pointer;
use crate::verify::place::Place;

use super::{MacForm, Piece, Summand, Token};

/// The tokens without a name behind them.
const WORDS: [(&str, Token); 18] = [
    ("atlassian_request", Token::AtlassianRequest),
    ("body", Token::Body),
    ("body_base64url", Token::BodyBase64Url),
    ("body_crc32", Token::BodyCrc32),
    ("body_json_ascii", Token::BodyJsonAscii),
    ("body_json_sorted", Token::BodyJsonSorted),
    ("body_json_string", Token::BodyJsonString),
    ("body_sha256_hex", Token::BodySha256Hex),
    ("contentful_uri", Token::ContentfulUri),
    ("form_sorted", Token::FormSorted),
    ("method", Token::Method),
    ("path", Token::Path),
    ("path_query", Token::PathQuery),
    ("plivo_v3_url", Token::PlivoV3Url),
    ("secret", Token::Secret),
    ("timestamp", Token::Timestamp),
    ("url", Token::Url),
    ("url_no_query", Token::UrlNoQuery),
];

pub(super) fn parse_flat(text: &str, params: &[String], pieces: &mut Vec<Piece>) -> Result<(), String> {
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, tail) = rest.split_at(open);
        literal.push_str(before);
        let inside = tail.strip_prefix('{').unwrap_or_default();
        if inside.starts_with(|c: char| c.is_ascii_lowercase()) {
            let (name, after) = inside
                .split_once('}')
                .ok_or_else(|| format!("`{{{inside}` has no `}}`"))?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Token(parse_token(name, params)?));
            rest = after;
        } else {
            literal.push('{');
            rest = inside;
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(())
}

fn parse_token(name: &str, params: &[String]) -> Result<Token, String> {
    if let Some((_, token)) = WORDS.iter().find(|(word, _)| *word == name) {
        return Ok(token.clone());
    }
    if let Some(place) = name.strip_prefix("header_lines:") {
        return Place::parse(place)
            .map(Token::HeaderLines)
            .map_err(|why| format!("in `{{{name}}}`: {why}"));
    }
    if let Some((kind, tail)) = name.split_once(':') {
        let place = |text: &str| Place::parse(text.trim()).map_err(|why| format!("in `{{{name}}}`: {why}"));
        match kind {
            "json_raw" => {
                let pointer = Pointer::parse(tail).ok_or_else(|| format!("`{tail}` is not a JSON pointer"))?;
                return Ok(Token::JsonRaw(pointer));
            }
            "sig_json_string" => return place(&format!("sig:{tail}")).map(Token::SignatureJsonString),
            "signed_headers" => return place(&format!("header:{tail}")).map(Token::SignedHeaders),
            "sorted_join" => {
                let items = tail.split(',').map(|item| match item.trim() {
                    "secret" => Ok(None),
                    item => place(item).map(Some),
                });
                return items.collect::<Result<_, _>>().map(Token::SortedJoin);
            }
            "hmac_hex" | "hmac_base64" => {
                let form = if kind == "hmac_hex" {
                    MacForm::Hex
                } else {
                    MacForm::Base64
                };
                return Ok(Token::Mac {
                    place: place(tail)?,
                    form,
                });
            }
            "sha256_hex" => {
                let summands = tail.split('+').map(|summand| match summand.trim() {
                    known if params.iter().any(|param| param == known) => Ok(Summand::Param(known.to_owned())),
                    summand => place(summand).map(Summand::Place),
                });
                return summands.collect::<Result<_, _>>().map(Token::Sha256Hex);
            }
            _ => {}
        }
        let (kind, optional) = match kind.strip_suffix('?') {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let place = Place::parse(&format!("{kind}:{tail}")).map_err(|why| format!("in `{{{name}}}`: {why}"))?;
        if place.param().is_some() {
            return Err(format!("`{{{name}}}` is named by a parameter; only `signature` may be"));
        }
        if matches!(place, Place::NumberedHeaders(..)) {
            return Err(format!("`{{{name}}}` names many headers"));
        }
        return Ok(Token::Value { place, optional });
    }
    if params.iter().any(|param| param == name) {
        return Ok(Token::Param(name.to_owned()));
    }
    let known = WORDS
        .iter()
        .map(|(word, _)| *word)
        .chain(params.iter().map(String::as_str));
    let near = known.min_by_key(|word| strsim::damerau_levenshtein(word, name));
    Err(match near {
        Some(near) => format!("unknown token `{{{name}}}`; did you mean `{{{near}}}`?"),
        None => format!("unknown token `{{{name}}}`"),
    })
}
