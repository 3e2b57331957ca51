//! What a backend, or an app for itself, tells the server of devices and their users, and asks of them.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::{Backend, Refusal};
use crate::phone::{Phone, Subscription};

/// What an app shows instead of a key.
const CREDENTIAL: &str = "x-device-credential";

fn path(phone: &Phone) -> String {
    format!("/v1/devices/{}", phone.id)
}

fn subscriptions(Subscription { subject, topic }: &Subscription) -> Value {
    json!({ "subscriptions": [{ "subject": subject, "topics": [topic] }] })
}

impl Backend {
    /// Registers a phone, or changes what is known of it; a new one gets its credential.
    pub(crate) async fn register(&self, phone: &Phone) -> Option<String> {
        let answer = self.must(Method::PUT, &path(phone), Some(&phone.registration())).await;
        answer["credential"].as_str().map(str::to_owned)
    }

    pub(crate) async fn subscribe(&self, phone: &Phone, subscription: &Subscription) {
        let body = subscriptions(subscription);
        self.must(Method::POST, &format!("{}/subscriptions", path(phone)), Some(&body)).await;
    }

    /// The same, tried by an app that shows this credential.
    pub(crate) async fn try_to_subscribe(
        &self,
        credential: &str,
        phone: &Phone,
        subscription: &Subscription,
    ) -> Result<(), Refusal> {
        let body = subscriptions(subscription);
        let path = format!("{}/subscriptions", path(phone));
        self.ask_with(Method::POST, &path, (CREDENTIAL, credential), Some(&body)).await.map(drop)
    }

    /// An app asks what is known of its phone.
    pub(crate) async fn look_at_itself(&self, phone: &Phone) -> Result<(), Refusal> {
        self.ask_with(Method::GET, &path(phone), (CREDENTIAL, &phone.credential), None).await.map(drop)
    }

    /// Whether the server knows a device of this id.
    pub(crate) async fn knows_device(&self, id: &str) -> bool {
        match self.call(Method::GET, &format!("/v1/devices/{id}"), None).await {
            Ok(_) => true,
            Err(Refusal { status: 404, .. }) => false,
            Err(refusal) => panic!("asking for {id} is refused: {refusal:?}"),
        }
    }

    /// Whether the server still knows where to reach the phone.
    pub(crate) async fn can_reach(&self, phone: &Phone) -> bool {
        let device = self.must(Method::GET, &path(phone), None).await;
        device.get("token").is_some()
    }

    /// The id of the device that has the phone's token.
    pub(crate) async fn owner_of_token(&self, phone: &Phone) -> String {
        let body = json!({ "platform": "ios", "token": phone.token });
        let found = self.must(Method::POST, "/v1/tokens/lookup", Some(&body)).await;
        found["id"].as_str().expect("the id of its device").to_owned()
    }

    /// Gives the phone another credential.
    pub(crate) async fn renew_credential(&self, phone: &Phone) -> String {
        let answer = self.must(Method::POST, &format!("{}/credential", path(phone)), None).await;
        answer["credential"].as_str().expect("a credential").to_owned()
    }

    /// The phone is nobody's from now on.
    pub(crate) async fn log_out(&self, phone: &Phone) {
        self.must(Method::POST, &format!("{}/logout", path(phone)), None).await;
    }

    /// The phone is spared what is about a subject, or "everything"; for so many seconds, or until it is taken back.
    pub(crate) async fn mute(&self, phone: &Phone, scope: &str, seconds: Option<u64>) {
        let body = seconds.map_or_else(|| json!({}), |seconds| json!({ "for": seconds }));
        self.must(Method::PUT, &format!("{}/mutes/{scope}", path(phone)), Some(&body)).await;
    }

    /// Takes that back.
    pub(crate) async fn unmute(&self, phone: &Phone, scope: &str) {
        self.must(Method::DELETE, &format!("{}/mutes/{scope}", path(phone)), None).await;
    }

    /// Whether the phone is spared anything.
    pub(crate) async fn is_muted(&self, phone: &Phone) -> bool {
        let mutes = self.must(Method::GET, &format!("{}/mutes", path(phone)), None).await;
        !mutes["mutes"].as_array().expect("a list").is_empty()
    }

    /// The tag of what is known of the phone now, as the refusal of a wrong one tells it.
    pub(crate) async fn tag(&self, phone: &Phone) -> String {
        let refused = self.change_if(phone, ("if-match", "\"none\"")).await;
        let detail = refused.expect_err("no device has it").detail;
        detail.rsplit(' ').next().expect("the tag stands last").to_owned()
    }

    /// Registers a phone if it still has this tag.
    pub(crate) async fn change_tagged(&self, phone: &Phone, tag: &str) -> Result<(), Refusal> {
        self.change_if(phone, ("if-match", tag)).await
    }

    /// Registers a phone if it is not known.
    pub(crate) async fn register_new(&self, phone: &Phone) -> Result<(), Refusal> {
        self.change_if(phone, ("if-none-match", "*")).await
    }

    async fn change_if(&self, phone: &Phone, condition: (&'static str, &str)) -> Result<(), Refusal> {
        self.ask_with(Method::PUT, &path(phone), condition, Some(&phone.registration())).await.map(drop)
    }

    /// The phone's language.
    pub(crate) async fn language(&self, phone: &Phone) -> String {
        let device = self.must(Method::GET, &path(phone), None).await;
        device["locale"].as_str().expect("each device has one").to_owned()
    }

    /// The ids of all devices that are kept of a user.
    pub(crate) async fn kept_of(&self, user: &str) -> Vec<String> {
        let kept = self.must(Method::GET, &format!("/v1/users/{user}/export"), None).await;
        assert_eq!(kept["user"], user);
        let devices = kept["devices"].as_array().expect("a list").iter();
        devices.map(|device| device["id"].as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) async fn forget_user(&self, user: &str) {
        self.must(Method::DELETE, &format!("/v1/users/{user}"), None).await;
    }

    /// With a header of its own.
    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        header: (&'static str, &str),
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.answer(method, path, Some(header), body).await.read()
    }
}
