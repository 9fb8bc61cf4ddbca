//! Bodies that the sender compressed after signing (`signed_over = "decoded"`): inflated to be checked, never passed on.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::Reason;

/// The bytes that were signed. Refused are codings other than gzip, what is not well formed, and what would come out
/// longer than `most` bytes: the output is bounded, whatever the input promises (RB-11).
pub(super) fn decoded<'b>(body: &'b [u8], coding: Option<&[u8]>, most: u64) -> Result<Cow<'b, [u8]>, Reason> {
    let coding = coding.unwrap_or_default();
    if coding.is_empty() || coding.eq_ignore_ascii_case(b"identity") {
        return Ok(Cow::Borrowed(body));
    }
    if !coding.eq_ignore_ascii_case(b"gzip") && !coding.eq_ignore_ascii_case(b"x-gzip") {
        return Err(Reason::BodyMalformed);
    }
    let mut out = Vec::new();
    let mut limited = MultiGzDecoder::new(body).take(most.saturating_add(1));
    limited.read_to_end(&mut out).map_err(|_broken| Reason::BodyMalformed)?;
    if u64::try_from(out.len()).is_ok_and(|len| len <= most) {
        Ok(Cow::Owned(out))
    } else {
        Err(Reason::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_and_no_coding_are_read() {
        assert_eq!(decoded(b"x", None, 9).as_deref(), Ok(&b"x"[..]));
        assert_eq!(decoded(b"x", Some(b"Identity"), 9).as_deref(), Ok(&b"x"[..]));
        assert_eq!(decoded(&gzip(b"text"), Some(b"GZIP"), 9).as_deref(), Ok(&b"text"[..]));
    }

    #[test]
    fn what_is_broken_or_unknown_is_malformed() {
        let whole = gzip(b"text");
        for end in 1..whole.len() {
            assert_eq!(
                decoded(&whole[..end], Some(b"gzip"), 9),
                Err(Reason::BodyMalformed),
                "{end}"
            );
        }
        assert_eq!(decoded(b"text", Some(b"gzip"), 9), Err(Reason::BodyMalformed));
        assert_eq!(decoded(b"text", Some(b"br"), 9), Err(Reason::BodyMalformed));
        assert_eq!(decoded(&whole, Some(b"gzip, gzip"), 9), Err(Reason::BodyMalformed));
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        let bomb = gzip(&vec![0; 10_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(decoded(&bomb, Some(b"gzip"), 100_000), Err(Reason::TooLarge));
        assert_eq!(decoded(&gzip(&[0; 100]), Some(b"gzip"), 100).unwrap().len(), 100);
    }
}
