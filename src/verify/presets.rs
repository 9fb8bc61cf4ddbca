//! The catalogue: records compiled into the program from `config/providers/`.

use std::sync::{Arc, OnceLock};

use crate::diagnostic::Diagnostics;

use super::record::Record;

/// One file of `config/providers/`. It is read when it is asked for: a source needs one of them, a start should not pay
/// for all.
struct Preset {
    name: &'static str,
    text: &'static str,
    record: OnceLock<Option<Arc<Record>>>,
}

impl Preset {
    /// A test proves that every text compiles; one that did not would be missing here, never half-used.
    fn record(&self) -> Option<&Arc<Record>> {
        let read = || Record::read_text(self.name, self.text, &mut Diagnostics::new()).map(Arc::new);
        self.record.get_or_init(read).as_ref()
    }
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// In alphabetical order.
        static PRESETS: [Preset; [$($name),*].len()] = [
            $(Preset {
                name: $name,
                text: include_str!(concat!("../../config/providers/", $name, ".toml")),
                record: OnceLock::new(),
            },)*
        ];
    };
}

presets!(
    "360learning",
    "ably",
    "acuity",
    "adyen",
    "adyen-platform",
    "affirm",
    "aftership",
    "aiprise",
    "airship",
    "airtable",
    "airwallex",
    "akeneo",
    "alchemy",
    "alipay",
    "anthropic",
    "appwrite",
    "asana",
    "ascend",
    "ashby",
    "attentive",
    "attio",
    "auth0",
    "authorize-net",
    "autodesk",
    "bigcommerce",
    "bigcommerce-header",
    "billit",
    "bitbucket",
    "bolt",
    "box",
    "braintree",
    "brex",
    "bridge-api",
    "bridge-xyz",
    "btcpay",
    "buildkite",
    "buildkite-token",
    "bunny-stream",
    "cal-com",
    "calendly",
    "cashfree",
    "chargebee",
    "chargify",
    "chatwoot",
    "checkout-com",
    "checkr",
    "circle",
    "circleci",
    "clerk",
    "clickup",
    "clio",
    "close",
    "cloudflare",
    "cloudflare-stream",
    "cloudinary",
    "cloudprinter",
    "coinbase-commerce",
    "commercelayer",
    "contentful",
    "courier",
    "crisp",
    "cursor",
    "customerio",
    "daily",
    "deepgram",
    "discord",
    "discord-events",
    "discourse",
    "docusign",
    "dodopayments",
    "doppler",
    "dropbox",
    "dropbox-sign",
    "dub",
    "dwolla",
    "easypost",
    "ebay",
    "elevenlabs",
    "enode",
    "etsy",
    "exact-online",
    "fal",
    "fastspring",
    "faundit",
    "favro",
    "finch",
    "fireblocks",
    "fireblocks-jwks",
    "fireflies",
    "fitbit",
    "flexport",
    "flutterwave",
    "flutterwave-v4",
    "front",
    "front-rule",
    "fusionauth",
    "gemini",
    "ghost",
    "gitea",
    "github",
    "gitlab",
    "gitlab-signing",
    "gocardless",
    "google-push",
    "grafana",
    "greenhouse",
    "gumroad",
    "helpscout",
    "heroku",
    "hmac",
    "hookdeck",
    "hubspot",
    "hubspot-v1",
    "hubspot-v2",
    "huggingface",
    "hygraph",
    "incident-io",
    "increase",
    "inngest",
    "intercom",
    "jira",
    "jira-connect",
    "kinde",
    "klaviyo",
    "knock",
    "kontent-ai",
    "lark",
    "launchdarkly",
    "lemonsqueezy",
    "lever",
    "line",
    "linear",
    "linkedin",
    "lithic",
    "liveblocks",
    "livekit",
    "lob",
    "loops",
    "mailchimp",
    "mailersend",
    "mailgun",
    "mailtrap",
    "make",
    "mandrill",
    "meraki",
    "mercadopago",
    "messagebird",
    "meta",
    "microsoft-graph",
    "modern-treasury",
    "mollie",
    "mollie-classic",
    "monday",
    "mongodb-atlas",
    "moralis",
    "ms-teams",
    "mux",
    "neon",
    "netlify",
    "nmi",
    "notion",
    "nowpayments",
    "npm-hooks",
    "nuvemshop",
    "nylas",
    "okta",
    "onfido",
    "onfleet",
    "openai",
    "orb",
    "oura",
    "paddle",
    "pagerduty",
    "pandadoc",
    "patreon",
    "paymob",
    "paypal",
    "paystack",
    "persona",
    "picqer",
    "pipedrive",
    "plaid",
    "plivo",
    "plivo-v2",
    "polar",
    "postmark",
    "praxis",
    "primer",
    "pusher",
    "pylon",
    "qstash",
    "quickbooks",
    "quicknode",
    "quoter",
    "ramp",
    "razorpay",
    "recall-ai",
    "recharge",
    "recurly",
    "render",
    "replicate",
    "resend",
    "retell",
    "revenuecat",
    "revenuecat-header",
    "revolut",
    "ringcentral",
    "saleor",
    "sanity",
    "savvycal",
    "scrapfly",
    "segment",
    "sendgrid",
    "sentry",
    "shipbob",
    "shiphero",
    "shippo",
    "shipstation-v2",
    "shopify",
    "shopline",
    "signable",
    "signatureapi",
    "sinch",
    "slack",
    "smartcar",
    "smile-api",
    "sns",
    "snyk",
    "solidgate",
    "square",
    "squarespace",
    "standard-webhooks",
    "statsig",
    "strava",
    "stream",
    "stripe",
    "stytch",
    "sumsub",
    "supabase-auth-hooks",
    "svix",
    "synctera",
    "tabapay",
    "tailscale",
    "tally",
    "tebex",
    "telegram",
    "telnyx",
    "terra",
    "terraform",
    "tiktok",
    "tiktok-shop",
    "tokenio",
    "trello",
    "truelayer",
    "twilio",
    "twitch",
    "typeform",
    "uber",
    "unit",
    "uploadcare",
    "utila",
    "vanta",
    "vapi",
    "vercel",
    "vercel-drains",
    "veriff",
    "viber",
    "vonage",
    "walmart",
    "webex",
    "webflow",
    "wechat-mp",
    "wechat-pay",
    "whatsapp",
    "whereby",
    "whoop",
    "whop",
    "wise",
    "wix",
    "woocommerce",
    "workos",
    "worldline",
    "x",
    "xero",
    "zendesk",
    "zerohash",
    "zoho-payments",
    "zoom",
);

/// The preset with this name or alias.
pub fn find(name: &str) -> Option<Arc<Record>> {
    let by_name = named(name).and_then(Preset::record);
    let by_alias = || {
        let mut records = PRESETS.iter().filter_map(Preset::record);
        records.find(|record| record.aliases().iter().any(|alias| alias == name))
    };
    by_name.or_else(by_alias).cloned()
}

/// Every preset, in the order of their names.
pub fn all() -> impl Iterator<Item = Arc<Record>> {
    PRESETS.iter().filter_map(|preset| preset.record().cloned())
}

/// All presets' names, without aliases, in alphabetical order.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// The known name that is nearest to `name`, if any is near.
pub fn nearest(name: &str) -> Option<&'static str> {
    near(name, PRESETS.iter().map(|preset| preset.name))
}

/// The one of several names that may have been meant.
pub fn near<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    known
        .min_by_key(|known| distance(known))
        .filter(|known| distance(known) <= 2.max(name.len() / 3))
}

/// A preset as it is written, for people and for records that extend it.
pub fn text(name: &str) -> Option<&'static str> {
    named(name).map(|preset| preset.text)
}

fn named(name: &str) -> Option<&'static Preset> {
    let place = PRESETS.binary_search_by_key(&name, |preset| preset.name).ok()?;
    PRESETS.get(place)
}

#[cfg(test)]
mod tests;
