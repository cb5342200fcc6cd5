{{- define "xts.name" -}}
{{- printf "%s-%s" .Release.Name "xts" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "xts.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "xts.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "xts.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a part: they cannot change when the chart is upgraded. */}}
{{- define "xts.selector" -}}
app.kubernetes.io/name: xts
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "xts.labels" -}}
{{ include "xts.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Keys of a TOML table. JSON's strings, numbers and lists of them are TOML's. */}}
{{- define "xts.toml" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ toJson $value }}
{{- end -}}
{{- end -}}

{{/* Where metrics are served, with the port, and with what. */}}
{{- define "xts.metrics" -}}
metrics = {{ printf "%s:%v" .root.Values.metrics.address .port | quote }}
{{- if .root.Values.metrics.tlsSecret }}
metrics_certificate = "/etc/xts-metrics-tls/tls.crt"
metrics_key = "/etc/xts-metrics-tls/tls.key"
{{- end }}
{{- if .root.Values.metrics.tokenSecret }}
metrics_token = "/etc/xts-metrics-token/token"
{{- end }}
{{- end -}}

{{- define "xts.secretMounts" -}}
{{- if .Values.tokenSecret }}
- {name: token-key, mountPath: /etc/xts-token, readOnly: true}
{{- end }}
{{- if and .Values.metrics.enabled .Values.metrics.tlsSecret }}
- {name: metrics-tls, mountPath: /etc/xts-metrics-tls, readOnly: true}
{{- end }}
{{- if and .Values.metrics.enabled .Values.metrics.tokenSecret }}
- {name: metrics-token, mountPath: /etc/xts-metrics-token, readOnly: true}
{{- end }}
{{- end -}}

{{- define "xts.secretVolumes" -}}
{{- if .Values.tokenSecret }}
- name: token-key
  secret: {secretName: {{ .Values.tokenSecret | quote }}, defaultMode: 0400, items: [{key: token.key, path: token.key}]}
{{- end }}
{{- if and .Values.metrics.enabled .Values.metrics.tlsSecret }}
- name: metrics-tls
  secret: {secretName: {{ .Values.metrics.tlsSecret | quote }}, defaultMode: 0400}
{{- end }}
{{- if and .Values.metrics.enabled .Values.metrics.tokenSecret }}
- name: metrics-token
  secret: {secretName: {{ .Values.metrics.tokenSecret | quote }}, defaultMode: 0400, items: [{key: token, path: token}]}
{{- end }}
{{- end -}}

{{/* What pods of both parts have. */}}
{{- define "xts.pod" -}}
serviceAccountName: {{ include "xts.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
