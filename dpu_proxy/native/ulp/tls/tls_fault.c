/* Turns OpenSSL's errors into faults, with OpenSSL's text as the reason. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include "tls.h"

#define FIRST_ALERT 1000 /* SSL_AD_REASON_OFFSET: from here on, reasons are alerts of the peer */

/* The alerts of RFC 8446 6, and those of TLS 1.2. */
static const char *const alert_names[] = {
	[0] = "close_notify",
	[10] = "unexpected_message",
	[20] = "bad_record_mac",
	[21] = "decryption_failed",
	[22] = "record_overflow",
	[30] = "decompression_failure",
	[40] = "handshake_failure",
	[42] = "bad_certificate",
	[43] = "unsupported_certificate",
	[44] = "certificate_revoked",
	[45] = "certificate_expired",
	[46] = "certificate_unknown",
	[47] = "illegal_parameter",
	[48] = "unknown_ca",
	[49] = "access_denied",
	[50] = "decode_error",
	[51] = "decrypt_error",
	[60] = "export_restriction",
	[70] = "protocol_version",
	[71] = "insufficient_security",
	[80] = "internal_error",
	[86] = "inappropriate_fallback",
	[90] = "user_canceled",
	[100] = "no_renegotiation",
	[109] = "missing_extension",
	[110] = "unsupported_extension",
	[112] = "unrecognized_name",
	[113] = "bad_certificate_status_response",
	[115] = "unknown_psk_identity",
	[116] = "certificate_required",
	[120] = "no_application_protocol",
};

static bool about_certificates(unsigned alert)
{
	return (alert >= 42 && alert <= 46) || alert == 48 || alert == 116;
}

static int fail(struct tls *t, enum xts_fault fault, const char *what, const char *detail)
{
	t->failed = ulp_fail(t->layer, fault, "%s%s", what, detail);
	if (t->done)
		tls_session_forget(t);
	return t->failed;
}

int tls_fault_alert(struct tls *t, unsigned alert)
{
	const char *name = alert < sizeof alert_names / sizeof *alert_names ? alert_names[alert] : NULL;

	if (!name)
		name = "unknown";
	if (about_certificates(alert))
		return fail(t, XTS_FAULT_CERTIFICATE, "the peer did not accept our certificate: alert ", name);
	return fail(t, XTS_FAULT_HANDSHAKE, "the peer ended the connection: alert ", name);
}

static int fail_ssl(struct tls *t, const struct tls_outcome *o)
{
	unsigned long error = o->error;
	const char *words = ERR_reason_error_string(error);
	int reason = ERR_GET_REASON(error);

	if (!words)
		words = "OpenSSL gives no reason";
	if (reason == ERR_R_MALLOC_FAILURE)
		return fail(t, XTS_FAULT_MEMORY, "", "no memory for TLS");
	if (ERR_GET_LIB(error) != ERR_LIB_SSL)
		return fail(t, t->done ? XTS_FAULT_RECORD : XTS_FAULT_HANDSHAKE, "", words);
	if (reason >= FIRST_ALERT && reason < FIRST_ALERT + 256)
		return tls_fault_alert(t, (unsigned)(reason - FIRST_ALERT));
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		return fail(t, XTS_FAULT_CERTIFICATE,
			    "the peer's certificate was not accepted: ", X509_verify_cert_error_string(o->verified));
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return fail(t, XTS_FAULT_CERTIFICATE, "", words);
	case SSL_R_UNEXPECTED_EOF_WHILE_READING:
		return fail(t, XTS_FAULT_HANDSHAKE, "", "the peer closed the connection during the handshake");
	case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
	case SSL_R_BAD_RECORD_TYPE:
	case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
	case SSL_R_DATA_LENGTH_TOO_LONG:
	case SSL_R_LENGTH_TOO_SHORT:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_UNEXPECTED_RECORD:
		return fail(t, t->done ? XTS_FAULT_RECORD : XTS_FAULT_HANDSHAKE,
			    t->done ? "" : "the handshake failed: ", words);
	default:
		return fail(t, XTS_FAULT_HANDSHAKE, t->done ? "" : "the handshake failed: ", words);
	}
}

struct tls_outcome tls_outcome(struct tls *t, int result)
{
	struct tls_outcome o = {
		.result = result,
		.error = ERR_peek_error(),
		.kind = SSL_get_error(t->ssl, result),
		.verified = SSL_get_verify_result(t->ssl),
	};

	ERR_clear_error();
	return o;
}

int tls_fault_of(struct tls *t, const struct tls_outcome *o)
{
	int r;

	if (o->kind == SSL_ERROR_WANT_READ || o->kind == SSL_ERROR_WANT_WRITE) {
		t->starved = o->kind == SSL_ERROR_WANT_READ && t->dry;
		r = t->below_error ? t->below_error : -EAGAIN;
	} else if (o->kind == SSL_ERROR_ZERO_RETURN) {
		r = -ENODATA;
	} else if (t->below_error) {
		r = t->failed = t->below_error;
	} else if (o->kind == SSL_ERROR_SSL || o->error) {
		r = fail_ssl(t, o);
	} else {
		r = fail(t, XTS_FAULT_HANDSHAKE, "", "the peer closed the connection");
	}
	if (t->failed)
		tls_bio_flush(t); /* sends the alert; if that fails, nothing can be done */
	return r;
}

int tls_fault(struct tls *t, int result)
{
	struct tls_outcome o = tls_outcome(t, result);

	return tls_fault_of(t, &o);
}
