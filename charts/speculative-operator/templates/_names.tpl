{{/* Full name: the release's name, with the chart's unless it is in there already. */}}
{{- define "speculative-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "speculative-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "speculative-operator.labels" -}}
{{ include "speculative-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "speculative-operator.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "speculative-operator.fullname" .) -}}
{{- end -}}

{{/* ClusterRole of gateway pods: the only role that the operator may bind. */}}
{{- define "speculative-operator.gatewayRole" -}}
{{- include "speculative-operator.fullname" . }}-gateway
{{- end -}}

{{/* Name of a shard's objects, of (context, shard); that of all where there is one shard. */}}
{{- define "speculative-operator.shardName" -}}
{{- $root := index . 0 -}}
{{- include "speculative-operator.fullname" $root -}}
{{- if gt (int $root.Values.operator.shards) 1 }}-{{ index . 1 }}{{ end -}}
{{- end -}}

{{/* Label by which a shard's pods are told from the others', of (context, shard). */}}
{{- define "speculative-operator.shardLabel" -}}
{{- if gt (int (index . 0).Values.operator.shards) 1 -}}
speculative.dev/shard: {{ index . 1 | quote }}
{{- end -}}
{{- end -}}
