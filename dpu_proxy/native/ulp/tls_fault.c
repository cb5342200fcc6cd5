/* From OpenSSL's errors to faults, with its own words for the reason. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include "tls.h"

#define FIRST_ALERT 1000 /* SSL_AD_REASON_OFFSET: reasons beyond are alerts of the peer */

/* RFC 8446 6.2 */
enum { ALERT_BAD_CERTIFICATE = 42, ALERT_CERTIFICATE_UNKNOWN = 46, ALERT_UNKNOWN_CA = 48, ALERT_CERTIFICATE_REQUIRED = 116 };

static int fail(struct tls *t, enum xts_fault fault, const char *what, const char *detail)
{
	t->failed = ulp_fail(t->layer, fault, "%s%s", what, detail);
	return t->failed;
}

static int fail_alert(struct tls *t, int alert)
{
	const char *name = SSL_alert_desc_string_long(alert);

	if ((alert >= ALERT_BAD_CERTIFICATE && alert <= ALERT_CERTIFICATE_UNKNOWN) || alert == ALERT_UNKNOWN_CA ||
	    alert == ALERT_CERTIFICATE_REQUIRED)
		return fail(t, XTS_FAULT_CERTIFICATE, "the peer did not accept our certificate: alert ", name);
	return fail(t, XTS_FAULT_HANDSHAKE, "the peer ended the connection: alert ", name);
}

static int fail_verification(struct tls *t)
{
	long result = SSL_get_verify_result(t->ssl);

	return fail(t, XTS_FAULT_CERTIFICATE, "the peer's certificate was not accepted: ", X509_verify_cert_error_string(result));
}

static int fail_ssl(struct tls *t, unsigned long error)
{
	const char *words = ERR_reason_error_string(error);
	int reason = ERR_GET_REASON(error);

	if (!words)
		words = "OpenSSL gives no reason";
	if (reason == ERR_R_MALLOC_FAILURE)
		return fail(t, XTS_FAULT_MEMORY, "", "no memory for TLS");
	if (ERR_GET_LIB(error) != ERR_LIB_SSL)
		return fail(t, t->done ? XTS_FAULT_RECORD : XTS_FAULT_HANDSHAKE, "", words);
	if (reason > FIRST_ALERT)
		return fail_alert(t, reason - FIRST_ALERT);
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		return fail_verification(t);
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return fail(t, XTS_FAULT_CERTIFICATE, "", words);
	case SSL_R_UNEXPECTED_EOF_WHILE_READING:
		return t->done ? fail(t, XTS_FAULT_TRUNCATED, "", "the peer's stream ended without close_notify") :
				 fail(t, XTS_FAULT_HANDSHAKE, "", "the peer closed the connection during the handshake");
	case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
	case SSL_R_BAD_RECORD_TYPE:
	case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
	case SSL_R_DATA_LENGTH_TOO_LONG:
	case SSL_R_LENGTH_TOO_SHORT:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_UNEXPECTED_RECORD:
		return fail(t, t->done ? XTS_FAULT_RECORD : XTS_FAULT_HANDSHAKE, t->done ? "" : "the handshake failed: ", words);
	default:
		return fail(t, XTS_FAULT_HANDSHAKE, t->done ? "" : "the handshake failed: ", words);
	}
}

int tls_fault(struct tls *t, int result)
{
	unsigned long error = ERR_peek_error();
	int kind = SSL_get_error(t->ssl, result), r;

	if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
		t->starved = kind == SSL_ERROR_WANT_READ;
		r = t->below_error ? t->below_error : -EAGAIN;
	} else if (kind == SSL_ERROR_ZERO_RETURN) {
		r = -ENODATA;
	} else if (t->below_error) {
		r = t->failed = t->below_error;
	} else if (kind == SSL_ERROR_SSL || error) {
		r = fail_ssl(t, error);
	} else {
		r = fail(t, t->done ? XTS_FAULT_TRUNCATED : XTS_FAULT_HANDSHAKE, "", "the peer closed the connection");
	}
	ERR_clear_error();
	if (t->failed)
		tls_bio_flush(t); /* the alert; nothing is to be done if it does not leave */
	return r;
}
