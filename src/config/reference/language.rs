//! The words of a provider's record: places, conditions, and the tokens of what is signed and answered.

/// One word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// As it is written.
    pub(super) example: &'static str,
    pub(super) meaning: &'static str,
}

const fn word(example: &'static str, meaning: &'static str) -> Word {
    Word { example, meaning }
}

pub(super) const ABOUT: &str = "\
The words inside the texts of `[providers.NAME]`: where a value stands, what is signed, and when something holds.
`hooksluice providers NAME` shows how a preset uses them.
";

/// Where a value stands.
pub(super) const PLACES: [Word; 10] = [
    word("header:X-Id", "a header line. One that stands there twice is no value"),
    word("query:id", "a parameter of the query, decoded"),
    word("form:id", "a field of a form body (URL-encoded or multipart), decoded"),
    word(
        "json:/data/id",
        "a text, number or boolean of a JSON body, by JSON pointer (RFC 6901)",
    ),
    word("form_json:payload:/id", "the same in the JSON that a form field holds"),
    word("item:/id", "the same in each element of the array that `each` names"),
    word("body", "the whole body"),
    word("jwt:sub", "a claim of the token, once its signature holds"),
    word("sig:t", "a key inside the signature header (`parse`)"),
    word(
        "header_numbered:X-Sig-{n}",
        "headers counted from 1; only as `signature`",
    ),
];

/// What a condition may be.
pub(super) const CONDITIONS: [Word; 9] = [
    word("PLACE", "there is a value; also `PLACE exists`"),
    word("PLACE == \"text\"", "the value is this"),
    word("PLACE contains \"text\"", "the value has this in it"),
    word("method == GET", "the request's method"),
    word("body is empty", "there is no body"),
    word("body starts with \"text\"", "the body's first bytes"),
    word("body is \"text<digits>\"", "the text and then nothing but digits"),
    word("always", "it holds"),
    word("not …", "it does not hold. Conditions are joined by `and`"),
];

/// What stands for a value in what is signed, and in answers to hand-shakes.
pub(super) const TOKENS: [Word; 30] = [
    word(
        "{PLACE}",
        "the value at a place, such as `{header:X-Id}`; without it nothing verifies",
    ),
    word(
        "{header?:X-Id}",
        "with `?` behind the kind: nothing where the value is absent",
    ),
    word("{PARAMETER}", "a parameter of the source (`params`)"),
    word("[[…]]", "left out whole where a value in it is absent"),
    word(
        "{body}",
        "the body's bytes as received; inflated with `signed_over = \"decoded\"`",
    ),
    word("{timestamp}", "the value at `timestamp`, as it is written"),
    word("{method}", "the request's method"),
    word("{url}", "`public_url` and the request's path and query"),
    word("{url_no_query}", "the same without the query"),
    word("{path}", "the request's path"),
    word("{path_query}", "the request's path and query"),
    word("{body_sha256_hex}", "SHA-256 of the body, hexadecimal"),
    word("{body_crc32}", "CRC-32 of the body, decimal"),
    word("{body_base64url}", "the body in base64url without padding (RFC 4648)"),
    word(
        "{body_json_string}",
        "the body as a JSON string, with its quotation marks",
    ),
    word(
        "{body_json_ascii}",
        "the JSON body with everything beyond ASCII escaped",
    ),
    word(
        "{body_json_sorted}",
        "the JSON body with its members sorted, without white space",
    ),
    word("{json_raw:/data}", "the bytes of a member of the JSON body"),
    word(
        "{form_sorted}",
        "names and values of the form, sorted by name, one after the other, as Twilio signs them",
    ),
    word(
        "{header_lines:header:X-Signed}",
        "`Name: value` and a line end for each header that the list there names",
    ),
    word(
        "{signed_headers:X-Signed}",
        "`name:value` of each header that this one lists, sorted by name, joined with `;`",
    ),
    word("{sig_json_string:t}", "a key of the signature header as a JSON string"),
    word(
        "{sorted_join:query:a,query:b}",
        "the values in the order of their bytes, one after the other; `secret` may be one",
    ),
    word("{secret}", "the secret; only with `kind = \"digest\"`"),
    word(
        "{atlassian_request}",
        "Atlassian Connect's canonical request, for its `qsh` claim",
    ),
    word("{contentful_uri}", "the path and query as Contentful writes them"),
    word(
        "{plivo_v3_url}",
        "the URL and the sorted form as Plivo's V3 signature writes them",
    ),
    word(
        "{hmac_hex:json:/token}",
        "the MAC of the value, under the source's own secret; only in a hand-shake's answer, and with `values`",
    ),
    word("{hmac_base64:query:crc_token}", "the same in base64"),
    word(
        "{sha256_hex:query:a + body}",
        "SHA-256 of values or parameters, one after the other; only in a hand-shake's answer",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Environment, load_text};
    use crate::time::Timestamp;

    /// A record in which every word of the language stands.
    fn record_of_words() -> String {
        let texts: Vec<&str> = TOKENS
            .iter()
            .map(|word| word.example)
            .filter(|text| {
                !["{hmac", "{sha256", "{secret", "{PLACE", "[["]
                    .iter()
                    .any(|start| text.starts_with(start))
            })
            .collect();
        let payload = texts.concat().replace("{PARAMETER}", "{own}");
        let places: Vec<&str> = PLACES.iter().map(|word| word.example).collect();
        let conditions: Vec<String> = CONDITIONS
            .iter()
            .map(|word| word.example.replace("PLACE", "header:x-a").replace('…', "always"))
            .collect();
        let answers: Vec<&str> = TOKENS
            .iter()
            .map(|word| word.example)
            .filter(|text| text.starts_with("{hmac") || text.starts_with("{sha256"))
            .collect();
        let challenges: String = places
            .iter()
            .filter(|place| place.starts_with("header:") || place.starts_with("query:") || place.starts_with("json:"))
            .map(|place| format!("{{{place}}}"))
            .chain(answers.iter().map(|answer| (*answer).to_owned()))
            .map(|body| {
                format!(
                    "[[providers.own.challenge]]\nwhen = '{}'\nvalues = \"token 1..64\"\nbody = '{body}'\n",
                    conditions.join(" and ")
                )
            })
            .collect();
        format!(
            "listen = \"127.0.0.1:1\"\npublic_url = \"https://hooks.example.test\"\n\
             [upstreams.app]\nurl = \"http://127.0.0.1:2\"\n\
             [sources.own]\npath = \"/own\"\nprovider = \"own\"\nsecret = {{ env = \"SECRET\" }}\nupstreams = [\"app\"]\n\
             params = {{ own = \"1\" }}\n\
             [providers.own]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = \"header:X-Signature\"\nparse = \"kv\"\n\
             signature_key = \"v1\"\nencoding = \"hex\"\ntimestamp = \"sig:t\"\nparams = [\"own\"]\n\
             payload = '{payload}[[{{header:X-Maybe}}]]'\n{challenges}"
        )
    }

    #[test]
    fn the_language_s_words_are_the_reader_s() {
        let text = record_of_words();
        let environment =
            Environment::fixed(Timestamp::from_secs(1_795_000_000)).with_variable("SECRET", "s".repeat(32));
        let (config, report) = load_text("own.toml", &text, &environment);
        assert!(config.is_some(), "{}\n{text}", report.render(false));
    }

    /// Each token of a preset's text is explained.
    #[test]
    fn what_presets_say_is_in_the_language() {
        let known: BTreeSet<&str> = TOKENS
            .iter()
            .map(|word| word.example)
            .chain(PLACES.iter().map(|word| word.example))
            .map(|text| {
                let text = text.trim_start_matches('{');
                text.split_once([':', '}'])
                    .map_or(text, |(name, _)| name)
                    .trim_end_matches('?')
            })
            .collect();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config/providers")).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for piece in text.split('{').skip(1) {
                let Some((inside, _)) = piece.split_once('}') else {
                    continue;
                };
                let name = inside.split([':']).next().unwrap_or_default().trim_end_matches('?');
                let is_token = !name.is_empty()
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                // `params = ["name", "name?", "name=default"]`, and what stands in numbered headers and in prose.
                let is_param = text.contains(&format!("\"{name}")) || ["n", "kid", "team_id"].contains(&name);
                assert!(
                    !is_token || is_param || known.contains(name),
                    "{}: `{{{inside}}}`",
                    path.display()
                );
            }
        }
    }
}
