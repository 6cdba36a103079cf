package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	yamldocs "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes, one of each kind.
type manifests struct {
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	config     corev1.ConfigMap
	secret     corev1.Secret
}

// readManifests decodes all files with Kubernetes's own types: a key that they do
// not have is an error, as it is for kubectl --validate=strict.
func readManifests(t *testing.T) *manifests {
	t.Helper()
	m, found := new(manifests), map[string]int{}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		documents := yamldocs.NewDocumentDecoder(io.NopCloser(bytes.NewReader(read(t, "deploy", file))))
		defer documents.Close()
		for {
			buf := make([]byte, 1<<20)
			n, err := documents.Read(buf)
			if errors.Is(err, io.EOF) {
				break
			}
			var kind metav1.TypeMeta
			if err == nil {
				err = yaml.Unmarshal(buf[:n], &kind)
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object, ok := map[metav1.TypeMeta]any{
				{APIVersion: "apps/v1", Kind: "Deployment"}:            &m.deployment,
				{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}: &m.budget,
				{APIVersion: "v1", Kind: "ConfigMap"}:                  &m.config,
				{APIVersion: "v1", Kind: "Secret"}:                     &m.secret,
			}[kind]
			if !ok {
				t.Fatalf("%s: %v is not known here", file, kind)
			}
			if err := yaml.UnmarshalStrict(buf[:n], object); err != nil {
				t.Errorf("%s: %s: %v", file, kind.Kind, err)
			}
			found[kind.Kind]++
		}
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget", "ConfigMap", "Secret"} {
		if found[kind] != 1 {
			t.Fatalf("%d of kind %s, want 1", found[kind], kind)
		}
	}
	return m
}

// kubernetesWorker returns the worker of a pod of the Deployment.
func kubernetesWorker(t *testing.T) deployed {
	t.Helper()
	m := readManifests(t)
	pod := m.deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.Containers[0].Ports) != 1 {
		t.Fatalf("%d containers, want 1 with 1 port", len(pod.Containers))
	}
	c := pod.Containers[0]
	d := deployed{
		args: c.Args, config: m.config.Data["config.yaml"], env: m.secret.StringData,
		port: int(c.Ports[0].ContainerPort), grace: time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second,
	}
	for name, probe := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Fatalf("%s: want a probe of port %s", name, c.Ports[0].Name)
		}
		d.probes = append(d.probes, probe.HTTPGet.Path)
	}
	if path := m.deployment.Spec.Template.Annotations["prometheus.io/path"]; path != "" {
		d.probes = append(d.probes, path)
	}
	return d
}

// TestKubernetes: what the objects say of one another is so, and a pod has no right
// that a worker does not need.
func TestKubernetes(t *testing.T) {
	m := readManifests(t)
	pod, template := m.deployment.Spec.Template.Spec, labels.Set(m.deployment.Spec.Template.Labels)
	for name, s := range map[string]*metav1.LabelSelector{"Deployment": m.deployment.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(template) {
			t.Errorf("%s: %v does not select %v (%v)", name, selector, template, err)
		}
	}
	if limit := m.budget.Spec.MaxUnavailable; limit == nil || limit.IntVal < 1 || m.budget.Spec.MinAvailable != nil {
		t.Errorf("the budget is %+v: nodes could not be drained", m.budget.Spec)
	}
	if policy := m.budget.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != policyv1.AlwaysAllow {
		t.Error("while Redis is away no worker is ready, and the budget lets no node be drained")
	}
	c := pod.Containers[0]
	if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef == nil || c.EnvFrom[0].SecretRef.Name != m.secret.Name {
		t.Errorf("the environment is not from the secret %s: %+v", m.secret.Name, c.EnvFrom)
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].ConfigMap == nil || pod.Volumes[0].ConfigMap.Name != m.config.Name {
		t.Fatalf("volumes %+v: want the configuration %s", pod.Volumes, m.config.Name)
	}
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != pod.Volumes[0].Name || !strings.HasPrefix(c.Args[len(c.Args)-1], c.VolumeMounts[0].MountPath+"/") {
		t.Errorf("%v is not where the volume is mounted: %+v", c.Args, c.VolumeMounts)
	}
	if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %+v", s)
	}
	if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("container: %+v", s)
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token for the API of Kubernetes")
	}
}
