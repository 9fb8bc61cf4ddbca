//! Where a value stands in a request: `header:X-Id`, `query:id`, `form:id`, `json:/data/id`, `sig:t`.

use std::borrow::Cow;
use std::cell::OnceCell;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, header};

use super::form;
use super::json::{self, Pointer};

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
    /// A key inside the signature header.
    Signature(String),
    /// The whole body.
    Body,
    /// A claim of the token, once its signature holds.
    Claim(Pointer),
}

impl Place {
    /// Parses `kind:name`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const HELP: &str = "expected `header:NAME`, `query:NAME`, `form:NAME`, `json:/POINTER` or `sig:KEY`";
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
        match kind {
            "header" => Ok(Self::Header(header(name)?)),
            "header_numbered" => {
                let (before, after) = name.split_once("{n}").ok_or("expected `{n}` where the number stands")?;
                header(&format!("{before}1{after}"))?;
                Ok(Self::NumberedHeaders(before.to_owned(), after.to_owned()))
            }
            "query" => Ok(Self::Query(named()?)),
            "form" => Ok(Self::Form(named()?)),
            "json" => Pointer::parse(name)
                .map(Self::Json)
                .ok_or_else(|| format!("`{name}` is not a JSON pointer; it starts with `/`")),
            "sig" => Ok(Self::Signature(named()?)),
            "jwt" => Ok(Self::Claim(claim(&named()?)?)),
            _ => Err(HELP.to_owned()),
        }
    }

    /// Whether the head alone shows the value.
    pub(super) const fn is_in_head(&self) -> bool {
        match self {
            Self::Header(_) | Self::NumberedHeaders(..) | Self::Query(_) | Self::Signature(_) => true,
            Self::Form(_) | Self::Json(_) | Self::Body | Self::Claim(_) => false,
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
            Self::Signature(key) => write!(f, "sig:{key}"),
            Self::Body => f.write_str("body"),
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
    pointers: &'r [Pointer],
    json: OnceCell<Vec<Option<String>>>,
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
            pointers,
            json: OnceCell::new(),
            claims: OnceCell::new(),
        }
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

    /// Whether the name has more than one line.
    pub(super) fn is_repeated(&self, name: &HeaderName) -> bool {
        self.headers.get_all(name).iter().nth(1).is_some()
    }

    /// Whether the body may be read as form fields: empty, or declared as a form.
    pub(super) fn has_form(&self) -> bool {
        self.body.is_empty() || self.header(&header::CONTENT_TYPE).is_some_and(form::is_form)
    }

    /// The value at `place`. `sig:` values are not known here.
    pub(super) fn get(&self, place: &Place) -> Option<Cow<'_, [u8]>> {
        match place {
            Place::Header(name) => self.header(name).map(Cow::Borrowed),
            Place::Query(name) => form::get(self.target.query()?.as_bytes(), name),
            Place::Form(name) => self.has_form().then(|| form::get(self.body, name))?,
            Place::Json(pointer) => self.json(pointer).map(|text| Cow::Borrowed(text.as_bytes())),
            Place::Body => Some(Cow::Borrowed(self.body)),
            Place::Claim(pointer) => {
                let found = json::find(self.claims.get()?, std::slice::from_ref(pointer));
                found.into_iter().next()?.map(|text| Cow::Owned(text.into_bytes()))
            }
            Place::NumberedHeaders(..) | Place::Signature(_) => None,
        }
    }

    /// The first value that is text and not empty.
    pub(super) fn text(&self, places: &[Place]) -> Option<String> {
        places
            .iter()
            .filter_map(|place| self.get(place))
            .filter(|value| !value.is_empty())
            .find_map(|value| String::from_utf8(value.into_owned()).ok())
    }

    fn json(&self, pointer: &Pointer) -> Option<&str> {
        let index = self.pointers.iter().position(|known| known == pointer)?;
        let values = self.json.get_or_init(|| json::find(self.body, self.pointers));
        values.get(index)?.as_deref()
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
            "body",
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
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
