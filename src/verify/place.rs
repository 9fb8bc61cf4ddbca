//! Where a value stands in a request: `header:X-Id`, `query:id`, `form:id`, `json:/data/id`, `form_json:events:/0/id`,
//! `item:/id`, `body`, `sig:t`.

use std::borrow::Cow;
use std::cell::OnceCell;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, header};

use crate::request::RequestHead;

use super::form;
use super::json::{self, Pointer};
use super::multipart;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A header line.
    Header(HeaderName),
    /// Headers whose names hold a number counted from 1 (`X-DocuSign-Signature-{n}`): the parts around it.
    NumberedHeaders(String, String),
    /// A query parameter, decoded.
    Query(String),
    /// A field of a form body, decoded.
    Form(String),
    /// A string, number or boolean of a JSON body.
    Json(Pointer),
    /// The same in the JSON that a field of a form body holds.
    FormJson(String, Pointer),
    /// The same in the element at hand of an array whose elements are judged one by one (`each`).
    Item(Pointer),
    /// The whole body.
    Body,
    /// A header whose name the source gives as a parameter.
    HeaderOf(String),
    /// A query parameter whose name the source gives as a parameter.
    QueryOf(String),
    /// A key inside the signature header.
    Signature(String),
    /// A claim of the token, once its signature holds.
    Claim(Pointer),
}

impl Place {
    /// Parses `kind:name`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const HELP: &str = "expected `header:NAME`, `query:NAME`, `form:NAME`, `json:/POINTER`, \
                            `form_json:NAME:/POINTER`, `item:/POINTER`, `body`, `jwt:CLAIM` or `sig:KEY`";
        if text == "body" {
            return Ok(Self::Body);
        }
        let (kind, name) = text.split_once(':').ok_or(HELP)?;
        let header = |name: &str| {
            name.parse()
                .map_err(|_invalid| format!("`{name}` is not a header name"))
        };
        let named = || match name {
            "" => Err(format!("there is no name behind `{kind}:`")),
            name => Ok(name.to_owned()),
        };
        let pointer = |text: &str| {
            Pointer::parse(text).ok_or_else(|| format!("`{text}` is not a JSON pointer; it starts with `/`"))
        };
        let param = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        match kind {
            "header" if let Some(param) = param => Ok(Self::HeaderOf(param.to_owned())),
            "query" if let Some(param) = param => Ok(Self::QueryOf(param.to_owned())),
            "header" => Ok(Self::Header(header(name)?)),
            "header_numbered" => {
                let (before, after) = name.split_once("{n}").ok_or("expected `{n}` where the number stands")?;
                header(&format!("{before}1{after}"))?;
                Ok(Self::NumberedHeaders(before.to_owned(), after.to_owned()))
            }
            "query" => Ok(Self::Query(named()?)),
            "form" => Ok(Self::Form(named()?)),
            "json" => Ok(Self::Json(pointer(name)?)),
            "item" => Ok(Self::Item(pointer(name)?)),
            "form_json" => {
                let (field, at) = name
                    .split_once(":/")
                    .filter(|(field, _)| !field.is_empty())
                    .ok_or("expected `form_json:NAME:/POINTER`")?;
                Ok(Self::FormJson(field.to_owned(), pointer(&format!("/{at}"))?))
            }
            "sig" => Ok(Self::Signature(named()?)),
            "jwt" => Ok(Self::Claim(claim(&named()?)?)),
            _ => Err(HELP.to_owned()),
        }
    }

    /// Whether the head alone shows the value.
    pub(super) const fn is_in_head(&self) -> bool {
        match self {
            Self::Header(_)
            | Self::NumberedHeaders(..)
            | Self::Query(_)
            | Self::Signature(_)
            | Self::HeaderOf(_)
            | Self::QueryOf(_) => true,
            Self::Form(_) | Self::Json(_) | Self::FormJson(..) | Self::Item(_) | Self::Body | Self::Claim(_) => false,
        }
    }

    /// The JSON pointer that finds it in the body.
    pub(super) const fn pointer(&self) -> Option<&Pointer> {
        match self {
            Self::Json(pointer) => Some(pointer),
            _ => None,
        }
    }

    /// The parameter that gives the name.
    pub(super) fn param(&self) -> Option<&str> {
        match self {
            Self::HeaderOf(param) | Self::QueryOf(param) => Some(param),
            _ => None,
        }
    }

    /// The place with the name that the source gives.
    pub(super) fn named(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::HeaderOf(_) => Self::parse(&format!("header:{name}")),
            Self::QueryOf(_) => Self::parse(&format!("query:{name}")),
            place => Ok(place.clone()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::NumberedHeaders(before, after) => write!(f, "header_numbered:{before}{{n}}{after}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::Json(pointer) => write!(f, "json:{}", pointer.as_str()),
            Self::FormJson(name, pointer) => write!(f, "form_json:{name}:{}", pointer.as_str()),
            Self::Item(pointer) => write!(f, "item:{}", pointer.as_str()),
            Self::Body => f.write_str("body"),
            Self::HeaderOf(param) => write!(f, "header:{{{param}}}"),
            Self::QueryOf(param) => write!(f, "query:{{{param}}}"),
            Self::Signature(key) => write!(f, "sig:{key}"),
            Self::Claim(pointer) => write!(f, "jwt:{}", pointer.as_str().strip_prefix('/').unwrap_or_default()),
        }
    }
}

/// A claim by its name; `/` leads into objects.
fn claim(name: &str) -> Result<Pointer, String> {
    Pointer::parse(&format!("/{name}")).ok_or_else(|| format!("`{name}` is no claim"))
}

/// A request as values are looked up in it. The body is parsed once, and only if something in it is asked for.
#[derive(Debug)]
pub(super) struct Fields<'r> {
    pub(super) method: &'r Method,
    pub(super) target: &'r PathAndQuery,
    pub(super) headers: &'r HeaderMap,
    pub(super) body: &'r [u8],
    /// The host that was asked for.
    pub(super) authority: Option<&'r str>,
    /// The element at hand, where the elements of an array are judged one by one.
    pub(super) item: Option<&'r [u8]>,
    pointers: &'r [Pointer],
    json: OnceCell<json::Found>,
    /// The claims of the request's token, once its signature holds.
    claims: OnceCell<Vec<u8>>,
}

impl<'r> Fields<'r> {
    /// `pointers` are all that will be asked for.
    pub(super) fn new(
        method: &'r Method,
        target: &'r PathAndQuery,
        headers: &'r HeaderMap,
        body: &'r [u8],
        pointers: &'r [Pointer],
    ) -> Self {
        Self {
            method,
            target,
            headers,
            body,
            authority: None,
            item: None,
            pointers,
            json: OnceCell::new(),
            claims: OnceCell::new(),
        }
    }

    /// Those of a request with this head, and with this for its body.
    pub(super) fn of(head: &'r RequestHead, body: &'r [u8], pointers: &'r [Pointer]) -> Self {
        Self::new(&head.method, &head.target, &head.headers, body, pointers)
    }

    /// Lets the claims be looked at, of a token whose signature holds.
    pub(super) fn believe(&self, claims: Vec<u8>) {
        // Of one request one token is believed.
        let _already = self.claims.set(claims);
    }

    /// With the host that was asked for.
    pub(super) fn asked(mut self, authority: Option<&'r str>) -> Self {
        self.authority = authority;
        self
    }

    /// The value of the first line with this name; present-but-empty is `Some("")`.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&'r [u8]> {
        self.headers.get(name).map(|value| value.as_bytes().trim_ascii())
    }

    /// The value of the only line with this name: where there are two, nobody can say which one is meant.
    pub(super) fn only_header(&self, name: &HeaderName) -> Option<&'r [u8]> {
        let mut lines = self.headers.get_all(name).iter();
        let first = lines.next()?.as_bytes().trim_ascii();
        lines.next().is_none().then_some(first)
    }

    /// Whether the name has more than one line.
    fn is_repeated(&self, name: &HeaderName) -> bool {
        self.headers.get_all(name).iter().nth(1).is_some()
    }

    /// A field of a form body of either kind, decoded.
    fn form_field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if self.has_form() {
            return form::get(self.body, name);
        }
        let boundary = multipart::boundary(self.header(&header::CONTENT_TYPE)?)?;
        multipart::get(self.body, boundary, name).map(Cow::Borrowed)
    }

    /// Whether the body may be read as URL-encoded form fields: empty, or declared as such a form.
    pub(super) fn has_form(&self) -> bool {
        self.body.is_empty() || self.header(&header::CONTENT_TYPE).is_some_and(form::is_form)
    }

    /// The value at `place`. `sig:` values are not known here.
    pub(super) fn get(&self, place: &Place) -> Option<Cow<'_, [u8]>> {
        match place {
            Place::Header(name) => self.header(name).map(Cow::Borrowed),
            Place::Query(name) => form::get(self.target.query()?.as_bytes(), name),
            Place::Form(name) => self.form_field(name),
            Place::Json(pointer) => self.json(pointer).map(into_bytes),
            Place::FormJson(name, pointer) => value_in(&self.form_field(name)?, pointer),
            Place::Item(pointer) => value_in(self.item?, pointer),
            Place::Body => Some(Cow::Borrowed(self.body)),
            Place::Claim(pointer) => json::value(self.claims.get()?, pointer).map(into_bytes),
            Place::NumberedHeaders(..) | Place::Signature(_) | Place::HeaderOf(_) | Place::QueryOf(_) => None,
        }
    }

    /// Whether the value at `place` is given twice, so that another reader may take the other one.
    pub(super) fn is_ambiguous(&self, place: &Place) -> bool {
        let in_json = |json: &[u8], pointer: &Pointer| json::is_repeated(json, std::slice::from_ref(pointer));
        match place {
            Place::Header(name) => self.is_repeated(name),
            Place::Query(name) => self
                .target
                .query()
                .is_some_and(|query| form::is_repeated(query.as_bytes(), name)),
            Place::Form(name) => self.is_form_repeated(name),
            Place::FormJson(name, pointer) => {
                self.is_form_repeated(name) || self.form_field(name).is_some_and(|text| in_json(&text, pointer))
            }
            Place::Json(pointer) => in_json(self.body, pointer),
            Place::Item(pointer) => self.item.is_some_and(|item| in_json(item, pointer)),
            Place::Body
            | Place::Claim(_)
            | Place::NumberedHeaders(..)
            | Place::Signature(_)
            | Place::HeaderOf(_)
            | Place::QueryOf(_) => false,
        }
    }

    fn is_form_repeated(&self, name: &str) -> bool {
        if self.has_form() {
            return form::is_repeated(self.body, name);
        }
        let boundary = self.header(&header::CONTENT_TYPE).and_then(multipart::boundary);
        boundary.is_some_and(|boundary| multipart::is_repeated(self.body, boundary, name))
    }

    /// The first value that is text and not empty.
    pub(super) fn text(&self, places: &[Place]) -> Option<String> {
        places.iter().find_map(|place| {
            let text = match place {
                Place::Json(pointer) => self.json(pointer)?.into_owned(),
                place => String::from_utf8(self.get(place)?.into_owned()).ok()?,
            };
            (!text.is_empty()).then_some(text)
        })
    }

    fn json(&self, pointer: &Pointer) -> Option<Cow<'r, str>> {
        let index = self
            .pointers
            .iter()
            .position(|known| known.as_str() == pointer.as_str())?;
        let found = self.json.get_or_init(|| json::find(self.body, self.pointers));
        found.value(self.body, index)
    }
}

fn value_in<'v>(json: &[u8], pointer: &Pointer) -> Option<Cow<'v, [u8]>> {
    json::value(json, pointer).map(|text| Cow::Owned(text.into_owned().into_bytes()))
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_prints_as_it_is_written() {
        for text in [
            "header:x-id",
            "header_numbered:x-sig-{n}",
            "query:a.b",
            "form:f",
            "json:/a/0",
            "json:",
            "sig:t",
            "form_json:events:/0/a:b",
            "item:/a",
            "body",
            "header:{name}",
            "query:{name}",
            "jwt:jti",
        ] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_place_is_refused_with_a_reason() {
        for bad in [
            "",
            "x-id",
            "cookie:a",
            "header:a b",
            "query:",
            "json:a",
            "header_numbered:x",
            "form_json:a",
            "form_json::/a",
            "item:a",
            "form:",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
